// SPDX-License-Identifier: BSL-1.0
// Finds the first type inside T that has no codec, for `encodable` and its sentences.
#pragma once

#include <weft/wire/detail/aggregate.hpp>
#include <weft/wire/detail/own_pair.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace weft {
template <class T>
struct codec;
}  // namespace weft

namespace weft::detail {

template <class T>
concept has_codec = requires { sizeof(codec<T>); };

// The search's answer: `type`, element `index` of `holder`, cannot be sent.
struct no_culprit {
  static constexpr bool none = true;
};
template <class T, class Holder, std::size_t Index>
struct culprit {
  static constexpr bool none = false;
  using type = T;
  using holder = Holder;
  static constexpr std::size_t index = Index;
};

template <class Codec>
struct codec_elements {
  using type = std::tuple<>;
};
template <class Codec>
  requires requires { typename Codec::elements; }
struct codec_elements<Codec> {
  using type = typename Codec::elements;
};

// Above: the types that contain T, so that a recursive type ends the search.
template <class T, class Holder, std::size_t Index, class... Above>
consteval auto search();

template <class Holder, class... Above, class... Es>
consteval auto search_each(std::type_identity<std::tuple<Es...>>) {
  if constexpr (sizeof...(Es) == 0) {
    return no_culprit{};
  } else {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (search<Es, Holder, I, Above...>() + ... + no_culprit{});
    }(std::index_sequence_for<Es...>{});
  }
}

template <class T, class Holder, std::size_t Index, class... Above>
consteval auto search() {
  if constexpr ((std::is_same_v<T, Above> || ...)) {
    return no_culprit{};
  } else if constexpr (!has_codec<T>) {
    return culprit<T, Holder, Index>{};
  } else {
    return search_each<T, T, Above...>(
        std::type_identity<typename codec_elements<codec<T>>::type>{});
  }
}

// The first culprit of two.
constexpr no_culprit operator+(no_culprit, no_culprit) { return {}; }
template <class T, class H, std::size_t I>
constexpr culprit<T, H, I> operator+(no_culprit, culprit<T, H, I>) {
  return {};
}
template <class T, class H, std::size_t I, class Other>
constexpr culprit<T, H, I> operator+(culprit<T, H, I>, Other) {
  return {};
}

template <class T>
using culprit_of = decltype(search<T, void, 0>());

template <class T>
inline constexpr bool is_view = false;
template <class C, class Traits>
inline constexpr bool is_view<std::basic_string_view<C, Traits>> = true;
template <class T, std::size_t N>
inline constexpr bool is_view<std::span<T, N>> = true;

// Type is what cannot be sent, Holder what directly contains it (void: nothing), Index its place
// there, counted from 0; the compiler prints them beside the sentence.
template <class Whole, class Type, class Holder, std::size_t Index>
consteval void explain() {
  if constexpr (half_a_pair<Type>) return refuse_half_a_pair<Type>();
  static_assert(!std::is_reference_v<Type> && !std::is_const_v<Type>,
                "weft: cannot send a reference or a const type: send a value.");
  static_assert(!std::is_pointer_v<Type>,
                "weft: cannot send a pointer: another process cannot follow it; send the value, a "
                "std::unique_ptr, or a weft::rref.");
  static_assert(!is_view<Type>,
                "weft: cannot send a view (std::string_view, std::span): it owns nothing; send a "
                "std::string or a std::vector.");
  if constexpr (std::is_enum_v<Type>) {
    static_assert(
        has_codec<Type>,
        "weft: cannot send an enum without an underlying type: not every number is one of "
        "its values; write 'enum name : int' or 'enum class name'.");
  } else if constexpr (std::is_class_v<Type> && std::is_aggregate_v<Type>) {
    (void)check_aggregate<Type>();
  } else if constexpr (std::is_union_v<Type>) {
    (void)check_aggregate<Type>();
  } else if constexpr (!std::is_reference_v<Type> && !std::is_const_v<Type> &&
                       !std::is_pointer_v<Type> && !is_view<Type>) {
    static_assert(has_codec<Type>,
                  "weft: cannot send 'Type': it is not an aggregate and has no codec; provide "
                  "weft_encode and weft_decode in its namespace, or specialise weft::codec. 'Type' "
                  "is a part of 'Whole': element 'Index' of 'Holder', if that is not void.");
  }
}

}  // namespace weft::detail
