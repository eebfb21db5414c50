// SPDX-License-Identifier: BSL-1.0
// Options of one call. They come after the arguments, are told apart by type, and never travel.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {

/// `within(2s)`: the call's own deadline instead of the default, never later than the one it
/// inherits. `within(std::chrono::hours::max())`: none but that.
struct within {
  template <class Rep, class Period>
  explicit constexpr within(std::chrono::duration<Rep, Period> d) noexcept : limit(bounded(d)) {}
  duration limit;
};

template <class T>
inline constexpr bool is_call_option = false;
template <>
inline constexpr bool is_call_option<within> = true;
template <>
inline constexpr bool is_call_option<as_expected_t> = true;

namespace detail {

struct call_settings {
  std::optional<duration> limit;
  void set(const within& w) noexcept { limit = w.limit; }
  void set(as_expected_t) noexcept {}
};

/// How many of `Args` at the end are options.
template <class... Args>
consteval std::size_t trailing_options() {
  constexpr bool option[] = {is_call_option<std::decay_t<Args>>..., false};
  std::size_t count = 0;
  while (count < sizeof...(Args) && option[sizeof...(Args) - 1 - count]) ++count;
  return count;
}
template <class... Args>
inline constexpr bool wants_expected = (std::is_same_v<std::decay_t<Args>, as_expected_t> || ...);

template <class Tuple, std::size_t... I>
call_settings settings_of(const Tuple& args, std::index_sequence<I...>) {
  call_settings out;
  constexpr std::size_t first = std::tuple_size_v<Tuple> - sizeof...(I);
  (out.set(std::get<first + I>(args)), ...);
  return out;
}

}  // namespace detail
}  // namespace weft
