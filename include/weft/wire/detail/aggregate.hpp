// SPDX-License-Identifier: BSL-1.0
// Members of plain aggregates, without macros: how many, which types, references to them, and
// building an aggregate from its members.
//
// Up to 32 members; a C array of up to 16 elements (all dimensions together) is one member. Empty
// base classes are passed over. Members need neither default construction, nor copying, nor
// assignment. Refused in a sentence: reference members, base classes with members, unions, longer
// C arrays, more members. Bit-fields are not supported: no reference can name one.
//
// Everything here is stateless and safe to call from any thread.
#pragma once

#include <weft/wire/detail/bindings.hpp>
#include <weft/wire/detail/elements.hpp>
#include <weft/wire/detail/layout.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// Whether the functions below accept T; never an error.
template <class T>
concept plain_aggregate =
    std::is_aggregate_v<std::remove_cv_t<T>> && !std::is_array_v<std::remove_cv_t<T>> &&
    aggregate_verdict_of<T>.defect == aggregate_defect::none;

/// The number of members of T, a C array counting as one.
template <class T>
consteval std::size_t member_count() {
  return layout_of<T>.count;
}

/// std::tuple<M...>: the declared types of the members, without const; C arrays stay arrays. A list
/// of types only: where one is an array, no such tuple can be made.
template <class T>
using member_types_t =
    typename without_cv<bound_types<std::remove_cv_t<T>, member_count<T>()>>::type;

/// std::tuple<M...> of what build<T> asks for: the member types with every C array replaced by its
/// elements. Always types of which a tuple can be made.
template <class T>
using element_types_t = typename flattened<member_types_t<T>>::type;

/// References to the members of `object` in order, const where it is const. They live as long as
/// the object.
template <class T>
constexpr auto members(T& object) noexcept {
  return bind_members<member_count<T>()>(object).references;
}

/// Makes a T of f.template operator()<M>(), called in the order of the members, once for each M of
/// element_types_t<T>: once per member, and for a C array once per element. What a call returns
/// initialises its member in place. If a call throws, what was made so far is destroyed.
template <class T, class F>
constexpr T build(F&& f) {
  return build_from<T>(f, std::type_identity<element_types_t<T>>{},
                       std::make_index_sequence<layout_of<T>.bases>{});
}

}  // namespace weft::detail
