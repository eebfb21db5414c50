// SPDX-License-Identifier: BSL-1.0
// The options of one call, taken from behind its arguments.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/wire/given_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {
struct retry;
template <class T, auto Place = nullptr>
class into;
}  // namespace weft

namespace weft::detail {

struct call_settings {
  std::optional<duration> limit;
  intrusive_ptr<given_memory> given{};  ///< for the tensors of the result
  void set(const within& w) noexcept { limit = w.limit; }
  void set(as_expected_t) noexcept {}
  void set(const retry&) noexcept {}  // see retry_of
  template <class T>
  void set(const into<T>& there) {
    given = there.give();
  }
  /// By when what begins now must end: in a scope, with that at the latest.
  [[nodiscard]] time_point deadline_from(time_point now, duration otherwise) const noexcept {
    const time_point own = later(now, limit.value_or(otherwise));
    const bool bounded = current_scope && current_scope->deadline;
    return bounded ? std::min(own, *current_scope->deadline) : own;
  }
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
template <class T>
inline constexpr bool is_into = false;
template <class T>
inline constexpr bool is_into<into<T>> = true;
template <class... Args>
inline constexpr bool wants_into = (is_into<std::decay_t<Args>> || ...);
template <class... Args>
inline constexpr bool wants_retry = (std::is_same_v<std::decay_t<Args>, retry> || ...);

/// What awaiting a call with these arguments gives, whose function returns R: R, or expected<R>
/// with `as_expected`.
template <class R, class... Args>
using call_return = std::conditional_t<wants_expected<Args...>, expected<R>, R>;

template <class Tuple, std::size_t... I>
call_settings settings_of(const Tuple& args, std::index_sequence<I...>) {
  call_settings out;
  constexpr std::size_t first = std::tuple_size_v<Tuple> - sizeof...(I);
  (out.set(std::get<first + I>(args)), ...);
  return out;
}
template <class Tuple, std::size_t... I>
retry retry_of(const Tuple& args, std::index_sequence<I...>);  // weft/rpc/retry.hpp

}  // namespace weft::detail
