// SPDX-License-Identifier: BSL-1.0
// `weft::wait(awaitable)`: how a thread that is no coroutine waits for one.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <optional>
#include <utility>

namespace weft {

/// Runs `work` on `me`'s loop and blocks this thread until it has ended; returns its result, throws
/// what it threw. It inherits deadline, autograd context and trace of the call that this thread
/// serves, if it does.
///
///   int n = weft::wait(me, me.peer(1).call<&f>(x));             // on any thread but a loop's
///   int m = weft::wait(me, me.peer(1).call<&f>(x), weft::within(2s));
///
/// For threads of the program's own, and for plain functions, which then hold their compute thread
/// meanwhile: if all compute threads wait for plain functions that run on the same threads, nothing
/// goes on until their deadlines pass; a coroutine function waits without a thread.
///
/// Throws rpc_error, instead of blocking for ever: invalid_argument on a thread that runs a loop or
/// I/O of any worker of this process, and where nobody has run `me`'s own loop for a second, or a
/// loop of the user's ever; shutting_down if the run is over; timed_out at the limit (default:
/// options.call_deadline). Then the work is cancelled, and has 250 ms to end; it may go on longer,
/// so it must own what it uses. The worker outlives this.
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
