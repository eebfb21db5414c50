// SPDX-License-Identifier: BSL-1.0
// A worker that a program owns and whose loop it runs, instead of giving its life to weft::run.
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

/// What `weft::join` (run.hpp) gives. The worker serves while its loop runs, until the run ends:
/// when every worker's main has returned, which `leave` says of this one, or with an error.
///
///   weft::owned_worker me = weft::join_blocking<weft::tcp>(options);
///   std::thread loop([&] { std::cerr << me.run().message(); });   // one thread serves
///   int n = weft::wait(*me, me->peer(0).call<&f>(1));             // others may wait
///   me.leave();
///   loop.join();
///
/// What belongs to the worker (`worker&`, `peer`) is not used after it; an `rref`, or a future of
/// its calls, may still be dropped. The thread that runs its loop is joined before.
///
/// Destroying it before its run has ended is a loss for the others, at once where nobody runs the
/// loop; else the run fails first, with errc::cancelled, which takes the loop some turns. Functions
/// that still run on compute threads are waited for, until the shutdown deadline, and then left
/// behind. Any thread, but no compute or I/O thread of this worker.
class owned_worker {
 public:
  /// Holds none.
  owned_worker() noexcept;
  explicit owned_worker(std::shared_ptr<detail::owned_life> life) noexcept;
  owned_worker(owned_worker&&) noexcept;
  owned_worker& operator=(owned_worker&& other) noexcept;
  ~owned_worker();

  /// Requires that it holds one; on a loop of the user's, that this lives.
  [[nodiscard]] worker& operator*() const;
  [[nodiscard]] worker* operator->() const { return &**this; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(life_); }

  /// Runs the loop on this thread until the run has ended and its threads have; returns what ended
  /// it, or success. The first thread to run it stays the one: another gets rpc_error
  /// invalid_argument, as does whoever calls this for a worker on a loop of the user's.
  error run();
  /// The same for so long at most, for programs with a main loop of another kind. True: the run has
  /// ended, and `run` returns at once what ended it.
  bool run_for(duration most);
  /// The same for what is ready.
  bool poll() { return run_for(duration::zero()); }

  /// This worker's part is done, as if its main had returned: it serves on until everybody's is.
  /// Any thread; further calls do nothing.
  void leave();
  /// This worker has failed, as if its main had thrown that: the run ends for all, or goes on
  /// without it (options.on_loss). Any thread; once it has left or failed it does nothing.
  void fail(std::string why);
  /// What ended the run, or success, once it has ended and its threads have. Any executor; any
  /// number may wait. Cancelling the wait throws rpc_error cancelled.
  [[nodiscard]] asio::awaitable<error> ended() const;

 private:
  [[nodiscard]] detail::owned_life& life() const;
  std::shared_ptr<detail::owned_life> life_;
};

}  // namespace weft

#include <weft/rpc/impl/owned_worker.hpp>
