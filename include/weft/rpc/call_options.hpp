// SPDX-License-Identifier: BSL-1.0
// Options of one call. They come after the arguments. weft tells them apart by type, and never
// sends them.
//
//   co_await p.call<&f>(x, weft::within(2s));                            // throws if it fails
//   weft::expected<int> n = co_await p.call<&f>(x, weft::as_expected);   // holds the error then
//
// The option `retry` has a header of its own.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>

#include <chrono>

namespace weft {

/// `within(2s)`: the call's own deadline instead of the default, never later than the one it
/// inherits. When it has passed, the call fails with timed_out, and is cancelled at the callee.
/// `within(no_limit)`: no deadline but the inherited one, for functions that serve as long as the
/// run lasts. Calls that these make have the default deadline again.
struct within {
  template <class Rep, class Period>
  explicit constexpr within(std::chrono::duration<Rep, Period> d) noexcept : limit(bounded(d)) {}
  duration limit;
};

/// Whether a T behind the arguments is an option of the call, not an argument.
template <class T>
inline constexpr bool is_call_option = false;
template <>
inline constexpr bool is_call_option<within> = true;
template <>
inline constexpr bool is_call_option<as_expected_t> = true;

}  // namespace weft
