// SPDX-License-Identifier: BSL-1.0
// `weft::run<transports...>(main, options)` is the whole life of a worker process. `weft::join`
// gives a worker that the program owns. The one file that has `main` includes this header: the face
// and the engine. Other files include weft/weft.hpp.
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/config.hpp>
#include <weft/engine/join.hpp>
#include <weft/engine/launch/launch.hpp>
#include <weft/engine/run.hpp>
#include <weft/rpc/owned_worker.hpp>
#include <weft/rpc/wait.hpp>
#include <weft/transport/any_transport.hpp>
#include <weft/weft.hpp>
#if defined(WEFT_SEPARATE_COMPILATION)
#include <weft/transport/detail/compiled.hpp>
#else
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>
#endif

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

namespace detail {
/// Fresh ones for a worker that is reached at these addresses.
template <runnable... Transports>
[[nodiscard]] transport_list fresh_transports(const std::vector<std::string>& addresses) {
  transport_list all;
  for (transport_list (*make)(const std::vector<std::string>&) :
       {&make_transports_at<Transports>...}) {
    for (any_transport_ptr& one : make(addresses)) all.push_back(std::move(one));
  }
  return all;
}
}  // namespace detail

/// Runs `main_` on a worker with these transports, most preferred first. Serves until every
/// worker's main has returned and all posts are done. If work is unfinished
/// `options.shutdown_deadline` after the last main returned, weft counts and prints it, and the run
/// has failed. If a plain function still runs then, weft names it, and this process leaves by
/// std::_Exit(1), without destructors, because no thread can be ended. Workers that are threads are
/// left behind with all that they can reach.
///
/// The environment (torchrun, mpirun, srun) says which worker this process is. If it does not, and
/// `options.workers` > 1, `run` starts that many processes of this program. If the only transport
/// is `inproc`, it starts threads instead.
///
/// Returns the exit status: 0, or 1 after it has printed one sentence that names the worker and the
/// cause. If it started processes and a signal ended the run: 128 + the signal (`launch_local`).
/// Throws nothing that `main_` or a peer caused.
///
/// A program of several processes calls `run` once. A process that has met others, or would start
/// processes, refuses a second call with one sentence. Runs over `inproc` or of one worker may
/// follow each other.
template <runnable... Transports>
[[nodiscard]] int run(worker_main main_, options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: run needs at least one transport: weft::run<weft::tcp>(main_)");
  if constexpr (sizeof...(Transports) == 1 && (std::is_same_v<Transports, inproc> && ...)) {
    return engine::run_threads(std::move(main_), std::move(o));
  } else {
    return engine::run(&detail::fresh_transports<Transports...>, std::move(main_), std::move(o));
  }
}

/// Joins a run with a worker that this program owns, for programs that have a main loop already. It
/// meets the others as `run` does, on a thread of its own. The worker serves on `loop`, and ends
/// with that io_context at the latest. Without `loop` it serves on a loop of its own, which one
/// thread runs by `owned_worker::run`. The environment or `options.place` says which worker it is;
/// several may live in one process. `join` starts no processes.
///
///   weft::owned_worker me = co_await weft::join<weft::unix_socket, weft::tcp>(io);
///   co_await me->peer(0).call<&f>(x);
///   me.leave();
///
/// Throws rpc_error rendezvous_failed, duplicate_name, invalid_argument, resource_exhausted (too
/// few descriptors), ambiguous_function. If the wait is cancelled, throws cancelled; the thread
/// that meets the others then ends within a second.
template <runnable... Transports>
[[nodiscard]] asio::awaitable<owned_worker> join(asio::io_context& loop, options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: join needs at least one transport: weft::join<weft::tcp>(io)");
  return engine::join(&detail::fresh_transports<Transports...>, &loop, std::move(o));
}
/// The same on a loop of its own.
template <runnable... Transports>
[[nodiscard]] asio::awaitable<owned_worker> join(options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: join needs at least one transport: weft::join<weft::tcp>()");
  return engine::join(&detail::fresh_transports<Transports...>, nullptr, std::move(o));
}
/// The same two for threads outside of coroutines. They block until the workers have met, for
/// `options.rendezvous_deadline` and two seconds at most.
template <runnable... Transports>
[[nodiscard]] owned_worker join_blocking(asio::io_context& loop, options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: join needs at least one transport: weft::join_blocking<weft::tcp>(io)");
  return engine::join_blocking(&detail::fresh_transports<Transports...>, &loop, std::move(o));
}
template <runnable... Transports>
[[nodiscard]] owned_worker join_blocking(options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: join needs at least one transport: weft::join_blocking<weft::tcp>()");
  return engine::join_blocking(&detail::fresh_transports<Transports...>, nullptr, std::move(o));
}

/// A mistake: a static_assert explains it.
template <runnable... Transports, class Main>
  requires(!std::is_convertible_v<Main, worker_main>)
[[nodiscard]] int run(Main&&, options = {}) {
  static_assert(std::is_convertible_v<Main, worker_main>,
                "weft: main_ must be callable as asio::awaitable<void> main_(weft::worker& me)");
  return 1;
}

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/engine/impl/join.hpp>
#endif

#include <weft/core/detail/macros_on.hpp>
