// SPDX-License-Identifier: BSL-1.0
// Lists of the types that an aggregate is built of.
#pragma once

#include <weft/wire/detail/probe.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

template <class Types>
struct without_cv;
template <class... Members>
struct without_cv<std::tuple<Members...>> {
  using type = std::tuple<std::remove_cv_t<Members>...>;
};

template <class... Lists>
struct joined;
template <class... A>
struct joined<std::tuple<A...>> {
  using type = std::tuple<A...>;
};
template <class... A, class... B, class... Rest>
struct joined<std::tuple<A...>, std::tuple<B...>, Rest...> {
  using type = typename joined<std::tuple<A..., B...>, Rest...>::type;
};

template <class M, class Indices>
struct repeated;
template <class M, std::size_t... I>
struct repeated<M, std::index_sequence<I...>> {
  using type = std::tuple<probe_at<M, I>...>;
};

// One member as the list of its elements: {M}, or {E, E, ...} for a C array.
template <class M>
using elements_of = typename repeated<
    std::remove_all_extents_t<M>,
    std::make_index_sequence<sizeof(M) / sizeof(std::remove_all_extents_t<M>)>>::type;

template <class Types>
struct flattened;
template <class... Members>
struct flattened<std::tuple<Members...>> {
  using type = typename joined<std::tuple<>, elements_of<Members>...>::type;
};

template <class T>
struct base_value {
  template <class M>
    requires(!std::is_same_v<M, T> && std::is_base_of_v<M, T>)
  constexpr operator M() const {
    return M{};
  }
};

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wmissing-braces"
#endif
template <class T, class F, class... Elements, std::size_t... Bases>
constexpr T build_from(F& f, std::type_identity<std::tuple<Elements...>>,
                       std::index_sequence<Bases...>) {
  return T { probe_at<base_value<T>, Bases>{}..., f.template operator()<Elements>()... };
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace weft::detail
