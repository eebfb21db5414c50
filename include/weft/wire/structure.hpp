// SPDX-License-Identifier: BSL-1.0
// Structural hash of a type: what two programs compare to know that they mean the same bytes.
//
// It is computed from a description of the type's structure: renaming a type, a member or a
// parameter keeps it; changing a type, an order or a count changes it. What a type's own
// weft_encode writes cannot be seen, so that its own name stands for it. All compilers and standard
// libraries agree on it.
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
//   a class with weft_encode and weft_decode   "own", its name; of a template, how many arguments,
//                                          and each: of a class or an enum that none of these
//                                          lines but aggregate and enum describe, its name
//                                          (and, of a template, its arguments likewise); and its
//                                          description, in whose standard types it is the same. A
//                                          name is without what it stands in: namespaces and
//                                          classes do not count
//   weft::structure<T> or T::weft_structure  "named", the text, the parts; comes before all others
#pragma once

#include <weft/wire/detail/describe.hpp>

#include <cstdint>

namespace weft {

/// Customization: names the wire format of a type that has its own codec (wire/codec.hpp). A type
/// with weft_encode has the name of its class, unless that stands in a template, or is a template
/// whose arguments are not all types that can be sent, and named so themselves: such a one needs
/// this, a specialisation of weft::codec too, and whatever changes its format and wants programs of
/// both to be told apart.
///
///   template <>
///   struct weft::structure<geo::shape> {
///     static constexpr std::string_view tag = "geo::shape 2";  // changed with the format
///     using parts = std::tuple<double, int>;  // optional: types whose formats it contains
///   };
///
/// A type of one's own can have a member instead:
///
///   static constexpr std::string_view weft_structure = "geo::shape 2";
template <class T>
struct structure {};

/// Whether T has a structural description; never an error. All here is computed by the compiler.
template <class T>
concept describable = detail::describes<T>();

/// The structural hash of a list of types, void among them. An error that names the type if one of
/// them cannot be described.
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
