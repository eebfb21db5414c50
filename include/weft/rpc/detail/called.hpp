// SPDX-License-Identifier: BSL-1.0
// What a call calls: the function, or one that gets its arguments first.
#pragma once

#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/stands_for.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// Fn, for which some arguments come as references: it runs once the values are there. Defined on a
/// higher floor: weft/rref/detail/resolving.hpp.
template <class Fn>
struct resolving;

template <class Fn, class... Args>
consteval bool takes_references() {
  using takes = typename Fn::arguments;
  using given = std::tuple<std::remove_cvref_t<Args>...>;
  constexpr std::size_t count = sizeof...(Args) - trailing_options<Args...>();
  if constexpr (count != std::tuple_size_v<takes>) {
    return false;
  } else {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (stands_for<std::tuple_element_t<I, given>, std::tuple_element_t<I, takes>> || ... ||
              false);
    }(std::make_index_sequence<count>());
  }
}

/// Of Fn with these arguments, options included.
template <class Fn, class... Args>
using called =
    typename std::conditional_t<takes_references<Fn, Args...>(), std::type_identity<resolving<Fn>>,
                                std::type_identity<Fn>>::type;

}  // namespace weft::detail
