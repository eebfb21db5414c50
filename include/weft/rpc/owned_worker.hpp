// SPDX-License-Identifier: BSL-1.0
// A worker that a program owns, and whose loop the program runs, instead of calling weft::run.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <memory>
#include <string>
#include <utility>

namespace weft {

namespace detail {
class owned_life;
}

/// The result of `weft::join` (run.hpp). The worker serves while its loop runs, until the run ends:
/// every worker's main has returned (for this worker: `leave`), or the run has failed.
///
///   weft::owned_worker me = weft::join_blocking<weft::tcp>(options);
///   std::thread loop([&] { std::cerr << me.run().message(); });   // one thread serves
///   int n = weft::wait(*me, me->peer(0).call<&f>(1));             // others may wait
///   me.leave();
///   loop.join();
///
/// Do not use a `worker&` or `peer` after its worker. An `rref`, or a future of its calls, may
/// still be dropped. Join the thread that runs the loop before you destroy the worker.
///
/// If it is destroyed before its run has ended, it is a loss for the others: at once if no thread
/// runs the loop. Else the run first fails with errc::cancelled, which takes the loop some turns.
/// The destructor waits for functions that still run on compute threads, until the shutdown
/// deadline; then it leaves them behind. Any thread, but no compute or I/O thread of this worker.
class owned_worker {
 public:
  /// Holds no worker.
  owned_worker() noexcept;
  explicit owned_worker(std::shared_ptr<detail::owned_life> life) noexcept;
  owned_worker(owned_worker&&) noexcept;
  owned_worker& operator=(owned_worker&& other) noexcept;
  ~owned_worker();

  /// Throws rpc_error invalid_argument if it holds no worker, or if your io_context on which the
  /// worker lived is gone.
  [[nodiscard]] worker& operator*() const;
  [[nodiscard]] worker* operator->() const { return &**this; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(life_); }

  /// Runs the loop on this thread until the run and its threads have ended. Returns the error that
  /// ended the run, or success. Only the first thread that runs the loop may do so. On another one,
  /// or if the worker lives on an io_context of yours, throws rpc_error invalid_argument.
  error run();
  /// The same for the time `most`, for programs with a main loop of another kind. True: the run has
  /// ended, and `run` returns its error at once.
  bool run_for(duration most);
  /// The same for handlers that are ready now.
  bool poll() { return run_for(duration::zero()); }

  /// This worker's part is done, as if its main had returned. It serves until every worker has left
  /// or failed. Any thread; more calls do nothing.
  void leave();
  /// This worker has failed, as if its main had thrown `why`: the run ends for all, or goes on
  /// without it (options.on_loss). Any thread; after `leave` or `fail` it does nothing.
  void fail(std::string why);
  /// Waits until the run and its threads have ended. Gives the error that ended the run, or
  /// success. Any number may wait, on any executor but the worker's own loop (invalid_argument).
  /// Cancelling the wait throws rpc_error cancelled.
  [[nodiscard]] asio::awaitable<error> ended() const;

 private:
  [[nodiscard]] detail::owned_life& life() const;
  std::shared_ptr<detail::owned_life> life_;
};

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/rpc/impl/owned_worker.hpp>
#endif
