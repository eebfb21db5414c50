// SPDX-License-Identifier: BSL-1.0
// Structural hash of a type: two programs compare it to know that they mean the same bytes.
//
// The hash is computed from a description of the type's structure. Renaming a type, a member or a
// parameter keeps it. Changing a type, an order or a count changes it. weft cannot see what a
// type's own weft_encode writes, so the type's name is compared instead. All compilers and standard
// libraries compute the same hash.
//
//   type                                   described as
//   bool, characters, integers, floats     kind and size
//   enum                                   "enum", its underlying type
//   std::basic_string, vector, set, map    kind, element types (deque and list as the vector,
//                                          unordered ones as the ordered)
//   optional, unique_ptr, pair, tuple      kind, element types
//   variant, array (C arrays too)          kind, count, element types
//   chrono duration, time point            kind, period, representation (no steady_clock)
//   aggregate                              "aggregate", count, its members in order
//   a type that is being described         "again", how many levels up
//   a class with weft_encode and weft_decode   "own", its name, the number of its template
//                                          arguments (0 if it is no template), each argument.
//                                          If an argument is an aggregate or an enum, its name
//                                          stands before its description; behind the name of a
//                                          template stand its arguments, in the same way. So it
//                                          is inside standard types. A name is the last part:
//                                          without namespaces and enclosing classes
//   weft::structure<T> or T::weft_structure  "named", the text, the parts; goes before all others
#pragma once

#include <weft/wire/detail/describe.hpp>

#include <cstdint>

namespace weft {

/// Customization: names the wire format of a type that has its own codec (wire/codec.hpp). By
/// default a type with weft_encode has the name of its class. These types need a name from you:
///   - a class inside a template
///   - a template, unless all its arguments are types that can be sent and have a name themselves
///   - a specialisation of weft::codec
///   - a type whose format has changed, so that programs with the old and the new format differ
///
///   template <>
///   struct weft::structure<geo::shape> {
///     static constexpr std::string_view tag = "geo::shape 2";  // changed with the format
///     using parts = std::tuple<double, int>;  // optional: types whose formats it contains
///   };
///
/// A type of your own can have a member instead:
///
///   static constexpr std::string_view weft_structure = "geo::shape 2";
template <class T>
struct structure {};

/// Whether T has a structural description; never an error. The compiler computes all of this.
template <class T>
concept describable = detail::describes<T>();

/// The structural hash of a list of types; void may be among them. If a type cannot be described,
/// this is a compile error that names it.
template <class... Types>
consteval std::uint32_t structure_hash() {
  detail::structure_text text;
  (detail::describe<detail::strict, Types>(text), ...);
  return text.hash();
}

namespace detail {
/// The same of T with names as this program spells them: for comparisons within a program.
template <class T>
consteval std::uint32_t structure_in_full() {
  structure_text text;
  describe<in_full, T>(text);
  return text.hash();
}
}  // namespace detail

/// The structural hash of T; references and const are ignored.
template <class T>
consteval std::uint32_t structure_of() {
  return structure_hash<T>();
}

}  // namespace weft
