// SPDX-License-Identifier: BSL-1.0
// `weft::wait(awaitable)`: a thread outside of coroutines waits for one.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <optional>
#include <utility>

namespace weft {

/// Runs `work` on `me`'s loop and blocks this thread until it has ended. Returns its result, or
/// throws its exception. If this thread serves a call, `work` inherits deadline, autograd context
/// and trace of that call.
///
///   int n = weft::wait(me, me.peer(1).call<&f>(x));             // on any thread but a loop's
///   int m = weft::wait(me, me.peer(1).call<&f>(x), weft::within(2s));
///
/// For threads of your own, and for plain functions. A plain function holds its compute thread
/// meanwhile. If all compute threads wait for plain functions that run on the same threads, none of
/// these goes on until a deadline passes. A coroutine function waits without a thread.
///
/// Throws rpc_error instead of blocking for ever:
/// - invalid_argument: this thread runs a loop or I/O of any worker of this process. Or no thread
///   has run `me`'s own loop for a second, or has ever run your io_context on which `me` lives.
/// - shutting_down: the run is over.
/// - timed_out: the limit has passed (default: options.call_deadline).
///
/// Then the work is cancelled, and has 250 ms to end. It may go on longer, so it must own what it
/// uses. The worker must outlive this call.
template <class T>
T wait(worker& me, asio::awaitable<T> work, std::optional<within> limit = std::nullopt);

/// The same for work that was started, as by `start`.
template <class T>
T wait(worker& me, future<T> work, std::optional<within> limit = std::nullopt);

/// The same for the one worker of this process; invalid_argument if it has none, or several.
template <class T>
T wait(asio::awaitable<T> work, std::optional<within> limit = std::nullopt);
template <class T>
T wait(future<T> work, std::optional<within> limit = std::nullopt);

}  // namespace weft

#include <weft/rpc/impl/wait.hpp>
#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/rpc/impl/wait_once.hpp>
#endif
