// SPDX-License-Identifier: BSL-1.0
// Waits and time limits, on the clock of the worker that the coroutine runs on. In a simulated
// world that is virtual time.
#pragma once

#include <weft/core/future.hpp>
#include <weft/core/time.hpp>

#include <asio/awaitable.hpp>

#include <chrono>
#include <utility>

namespace weft {

namespace detail {
/// Templates over the io_context only so that nothing of them is compiled where it is not used.
template <class Context = asio::io_context>
[[nodiscard]] asio::awaitable<void> sleep_on_clock(duration d);
/// On that io_context.
template <class Context>
[[nodiscard]] asio::awaitable<void> wait_until(clock& time, Context& io, time_point when);
template <class T>
[[nodiscard]] asio::awaitable<T> end_within(duration d, asio::awaitable<T> work);
}  // namespace detail

/// Resumes after `d` at the earliest; if `d` is zero or less, behind all handlers that are ready
/// now. On a worker's executor it uses the worker's clock. On another io_context, which one thread
/// must run, it uses the machine's clock. On other executors it throws rpc_error invalid_argument.
/// If it is cancelled, it throws system_error operation_aborted.
///
///   co_await weft::sleep_for(100ms);
template <class Rep, class Period>
[[nodiscard]] asio::awaitable<void> sleep_for(std::chrono::duration<Rep, Period> d) {
  return detail::sleep_on_clock(bounded(d));
}

/// Gives the result of `work`. After `d` it cancels `work` and throws rpc_error timed_out. Calls in
/// `work` inherit the deadline. It always waits until `work` has ended, even if it is cancelled
/// itself.
///
///   std::optional<batch> b = co_await weft::with_deadline(2s, batches.receive());
template <class Rep, class Period, class T>
[[nodiscard]] asio::awaitable<T> with_deadline(std::chrono::duration<Rep, Period> d,
                                               asio::awaitable<T> work) {
  return detail::end_within(bounded(d), std::move(work));
}
/// The same for work that already runs: after `d` it is asked to end, and not awaited.
template <class Rep, class Period, class T>
[[nodiscard]] asio::awaitable<T> with_deadline(std::chrono::duration<Rep, Period> d,
                                               future<T> work) {
  return detail::end_within(bounded(d), std::move(work).get());
}

}  // namespace weft

#include <weft/core/impl/sleep_for.hpp>
