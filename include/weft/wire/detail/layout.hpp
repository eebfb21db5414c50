// SPDX-License-Identifier: BSL-1.0
// Judges an aggregate: how many base classes and members it has, or why it cannot be taken apart.
#pragma once

#include <weft/wire/detail/bindings.hpp>
#include <weft/wire/detail/probe.hpp>
#include <weft/wire/detail/sentence.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

// Why an aggregate cannot be taken apart.
enum class aggregate_defect {
  none,
  not_an_aggregate,
  is_union,
  reference_member,
  base_with_members,
  union_member,
  long_array,
  too_many_members,
};

struct aggregate_verdict {
  aggregate_defect defect = aggregate_defect::none;
  std::size_t index = 0;  // of the member (or base class) at fault, counted from 0
};

struct aggregate_layout {
  aggregate_verdict verdict{};
  std::size_t bases = 0;  // empty base classes, which braces initialise before the members
  std::size_t count = 0;  // members
};

template <class T, std::size_t Flat, std::size_t At>
consteval void lay_out(aggregate_layout& layout) {
  if constexpr (At < Flat) {
    constexpr std::size_t wide = width<T, Flat, At>();
    if (layout.count == max_members) {
      layout.verdict = {aggregate_defect::too_many_members, max_members};
      return;
    }
    if (wide > max_array_elements) {
      layout.verdict = {aggregate_defect::long_array, layout.count};
      return;
    }
    if (is_at<T, At, any_union<T>, Flat>) {
      layout.verdict = {aggregate_defect::union_member, layout.count};
      return;
    }
    ++layout.count;
    lay_out<T, Flat, At + wide>(layout);
  }
}

template <class T, std::size_t Flat, std::size_t Bases, std::size_t Index = 0>
consteval std::size_t first_full_base() {
  if constexpr (Index == Bases) {
    return not_found;
  } else if constexpr (!takes_probe<T, Index, any_empty_base<T>, Flat - Index - 1>) {
    return Index;
  } else {
    return first_full_base<T, Flat, Bases, Index + 1>();
  }
}

template <class... Members>
consteval std::size_t first_reference(std::type_identity<std::tuple<Members...>>) {
  std::size_t index = 0;
  const bool found = ((std::is_reference_v<Members> || (static_cast<void>(++index), false)) || ...);
  return found ? index : not_found;
}

template <class T, std::size_t Count>
using bound_types = typename decltype(bind_members<Count>(std::declval<T&>()))::types;

template <class T>
consteval aggregate_layout compute_layout() {
  aggregate_layout layout;
  if constexpr (std::is_union_v<T>) {
    layout.verdict = {aggregate_defect::is_union, 0};
  } else if constexpr (!std::is_aggregate_v<T> || std::is_array_v<T>) {
    layout.verdict = {aggregate_defect::not_an_aggregate, 0};
  } else if constexpr (flat_count<T> == not_found) {
    constexpr std::size_t with_references = count_flat<T, any_reference<T>>();
    if constexpr (with_references <= max_members) {
      constexpr std::size_t index =
          first_reference(std::type_identity<bound_types<T, with_references>>{});
      layout.verdict = {aggregate_defect::reference_member, index};
    } else {
      layout.verdict = {aggregate_defect::too_many_members, max_members};
    }
  } else {
    constexpr std::size_t flat = flat_count<T>;
    constexpr std::size_t bases = count_bases<T, flat>();
    layout.bases = bases;
    lay_out<T, flat, bases>(layout);
    if constexpr (first_full_base<T, flat, bases>() != not_found) {
      layout.verdict = {aggregate_defect::base_with_members, first_full_base<T, flat, bases>()};
    }
  }
  return layout;
}

template <class T>
inline constexpr aggregate_layout counted_layout = compute_layout<T>();

template <class T>
consteval aggregate_verdict judge_aggregate() {
  constexpr aggregate_layout layout = counted_layout<T>;
  if constexpr (layout.verdict.defect != aggregate_defect::none) {
    return layout.verdict;
  } else {  // `const int&` and `int&&` take a prvalue: only the binding shows them
    constexpr std::size_t index =
        first_reference(std::type_identity<bound_types<T, layout.count>>{});
    if constexpr (index != not_found) {
      return {aggregate_defect::reference_member, index};
    } else {
      return {};
    }
  }
}

template <class T>
inline constexpr aggregate_verdict aggregate_verdict_of = judge_aggregate<std::remove_cv_t<T>>();

// False conditions of the sentences below. Clang prints them with T and Index (which member or base
// class, counted from 0) in place.
template <class T>
inline constexpr bool is_an_aggregate = false;
template <class T>
inline constexpr bool is_no_union = false;
template <class T, std::size_t Index>
inline constexpr bool member_is_no_reference = false;
template <class T, std::size_t Index>
inline constexpr bool base_class_has_no_members = false;
template <class T, std::size_t Index>
inline constexpr bool member_is_no_union = false;
template <class T, std::size_t Index>
inline constexpr bool member_is_no_long_array = false;
template <class T>
inline constexpr bool has_at_most_32_members = false;

template <class T, aggregate_defect Defect, std::size_t Index>
consteval void refuse_aggregate() {
  using enum aggregate_defect;
  if constexpr (Defect == not_an_aggregate) {
    WEFT_REQUIRE((is_an_aggregate<T>),
                 "weft: this type is no aggregate, so weft cannot take it apart; give it a codec.",
                 "weft: ", spelled<T>(),
                 " is no aggregate, so weft cannot take it apart; give it a codec.");
  } else if constexpr (Defect == is_union) {
    WEFT_REQUIRE((is_no_union<T>),
                 "weft: a union cannot be sent, because weft cannot know which of its members is "
                 "alive; use std::variant.",
                 "weft: the union ", spelled<T>(),
                 " cannot be sent, because weft cannot know which of its members is alive; use "
                 "std::variant.");
  } else if constexpr (Defect == reference_member) {
    WEFT_REQUIRE((member_is_no_reference<T, Index>),
                 "weft: this member (counted from 0) is a reference, which cannot be sent; store a "
                 "value instead.",
                 "weft: member ", Index, " (counted from 0) of ", spelled<T>(),
                 " is a reference, which cannot be sent; store a value instead.");
  } else if constexpr (Defect == base_with_members) {
    WEFT_REQUIRE((base_class_has_no_members<T, Index>),
                 "weft: this base class (counted from 0) has members; make it a member, or give "
                 "the type a codec.",
                 "weft: base class ", Index, " (counted from 0) of ", spelled<T>(),
                 " has members; make it a member, or give the type a codec.");
  } else if constexpr (Defect == union_member) {
    WEFT_REQUIRE((member_is_no_union<T, Index>),
                 "weft: this member (counted from 0) is a union, and weft cannot know which of its "
                 "members is alive; use std::variant.",
                 "weft: member ", Index, " (counted from 0) of ", spelled<T>(),
                 " is a union, and weft cannot know which of its members is alive; use "
                 "std::variant.");
  } else if constexpr (Defect == long_array) {
    WEFT_REQUIRE((member_is_no_long_array<T, Index>),
                 "weft: this member (counted from 0) is a C array of more than 16 elements; use "
                 "std::array.",
                 "weft: member ", Index, " (counted from 0) of ", spelled<T>(),
                 " is a C array of more than 16 elements; use std::array.");
  } else if constexpr (Defect == too_many_members) {
    WEFT_REQUIRE((has_at_most_32_members<T>),
                 "weft: this aggregate has more than 32 members, or a C array of more than 16 "
                 "elements (use std::array), or cannot be counted; put some of its members into "
                 "an aggregate of their own, or give it a codec.",
                 "weft: ", spelled<T>(),
                 " has more than 32 members, or a C array of more than 16 elements (use "
                 "std::array), or cannot be counted; put some of its members into an aggregate of "
                 "their own, or give it a codec.");
  }
}

template <class T>
consteval void check_aggregate() {
  constexpr aggregate_verdict verdict = aggregate_verdict_of<T>;
  refuse_aggregate<T, verdict.defect, verdict.index>();
}

template <class T>
consteval aggregate_layout checked_layout() {
  check_aggregate<T>();
  return counted_layout<std::remove_cv_t<T>>;
}
template <class T>
inline constexpr aggregate_layout layout_of = checked_layout<T>();

}  // namespace weft::detail
