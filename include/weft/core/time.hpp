// SPDX-License-Identifier: BSL-1.0
// Time: a clock that a simulator can own. Many deadlines over one timer: core/timer_list.hpp.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <type_traits>

namespace asio {
class io_context;
}

namespace weft {

using time_point = std::chrono::steady_clock::time_point;
using duration = std::chrono::steady_clock::duration;

/// No time limit: `within(no_limit)` of a call, `with_deadline(no_limit, work)`.
inline constexpr duration no_limit = duration::max();

/// Converts any duration to weft's, which reaches 292 years. A longer one becomes the longest.
template <class Rep, class Period>
[[nodiscard]] constexpr duration bounded(std::chrono::duration<Rep, Period> d) noexcept {
  using wide = std::chrono::duration<long double>;
  constexpr wide most = wide(duration::max()) - wide(1);  // no rounding leads beyond
  if (wide(d) <= -most) return duration::min();
  if (!(wide(d) < most)) return duration::max();
  if constexpr (std::is_floating_point_v<Rep>) {
    return std::chrono::duration_cast<duration>(wide(d));
  } else {
    return std::chrono::duration_cast<duration>(d);
  }
}
/// `t + d`, but at most time_point::max(). Pure, as `bounded` is.
[[nodiscard]] constexpr time_point later(time_point t, duration d) noexcept {
  if (d > duration(0) && t > time_point::max() - d) return time_point::max();
  return t + d;
}

/// One alarm at a time. `arm` replaces an earlier alarm; destruction cancels. Call all members on
/// the thread of the timer's io_context, or while no thread runs it.
///
///   auto t = me.time().make_timer(io);
///   t->arm(me.time().now() + 1s, [] { ... });
class timer {
 public:
  virtual ~timer() = default;
  /// `alarm` runs once, at `when` or later, inside `run` of the timer's io_context; never inside
  /// `arm`. If it is replaced or cancelled, or its timer is destroyed, it does not run any more,
  /// even if it is due and waits behind other work of the io_context. `alarm` may arm, cancel and
  /// destroy its timer.
  virtual void arm(time_point when, std::function<void()> alarm) = 0;
  virtual void cancel() = 0;
};

/// The source of a worker's time. Thread safe.
///
///   const weft::time_point until = weft::later(me.time().now(), 2s);
class clock {
 public:
  virtual ~clock() = default;
  [[nodiscard]] virtual time_point now() const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<timer> make_timer(asio::io_context& context) = 0;
};

}  // namespace weft
