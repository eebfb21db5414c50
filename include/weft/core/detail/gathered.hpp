// SPDX-License-Identifier: BSL-1.0
// How the arguments of `gather` and its like are told apart.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>

#include <asio/awaitable.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace weft::detail {

template <class>
inline constexpr bool is_started = false;
template <class T>
inline constexpr bool is_started<future<T>> = true;
template <class T>
inline constexpr bool is_started<asio::awaitable<T>> = true;
template <class Work>
using result_of = typename Work::value_type;

template <class... Args>
consteval std::size_t leading_work() {
  constexpr bool is_work[] = {is_started<Args>..., false};
  std::size_t count = 0;
  while (is_work[count]) ++count;
  return count;
}
/// Work, and as_expected behind it. Args as deduced for forwarding references.
template <class... Args>
concept work_as_expected = (std::same_as<std::remove_cvref_t<Args>, as_expected_t> || ...) &&
                           (leading_work<Args...>() + 1 == sizeof...(Args));

/// Whether an argument is work that would have to be copied.
template <class Arg>
inline constexpr bool is_kept_work = false;
template <class T>
inline constexpr bool is_kept_work<T&> = is_started<std::remove_const_t<T>>;
template <class T>
inline constexpr bool is_kept_work<const T> = is_started<T>;
template <class Work>
inline constexpr bool is_kept_work<std::vector<Work>&> = is_started<Work>;
template <class Work>
inline constexpr bool is_kept_work<const std::vector<Work>&> = is_started<Work>;
template <class Work>
inline constexpr bool is_kept_work<const std::vector<Work>> = is_started<Work>;

/// gather(calls): false, so that whoever writes it reads how it is done.
template <class... Args>
inline constexpr bool results_are_moved_out = false;

}  // namespace weft::detail
