// SPDX-License-Identifier: BSL-1.0
// The options of a worker; examples/guide/options.md has a table of them.
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/loss_policy.hpp>
#include <weft/rpc/placement.hpp>
#include <weft/wire/limits.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// A text for each worker: the same for all, or a function of (rank, world size).
class per_worker_text {
 public:
  per_worker_text() = default;
  per_worker_text(std::string value)
      : choose_([v = std::move(value)](std::uint32_t, std::uint32_t) { return v; }) {}
  per_worker_text(const char* value) : per_worker_text(std::string(value)) {}
  template <class Choose>
    requires std::is_invocable_r_v<std::string, Choose, std::uint32_t, std::uint32_t>
  per_worker_text(Choose choose) : choose_(std::move(choose)) {}

  [[nodiscard]] std::string operator()(std::uint32_t rank, std::uint32_t size,
                                       std::string otherwise) const {
    return choose_ ? choose_(rank, size) : otherwise;
  }

 private:
  std::function<std::string(std::uint32_t, std::uint32_t)> choose_;
};

/// `run` starts at most this many workers on a host; it takes more for a mistake. Each keeps about
/// 4 KiB for each of the others, so as many threads of one process need 4 GiB.
inline constexpr std::uint32_t max_workers_per_host = 1024;

struct options {
  /// Workers to start, if no launcher has started this process (it would set RANK, for example).
  /// 0: one. At most `max_workers_per_host`.
  std::uint32_t workers = 0;
  /// Which worker this is; default: from the environment. For launchers of your own, and for
  /// several workers in one process (weft::join).
  std::optional<placement> place{};
  /// Tells this run from others at the same meeting place; default: WEFT_RUN_ID, else the
  /// launcher's name for the run.
  std::string run_id{};
  per_worker_text name{};  ///< default "worker<rank>"
  per_worker_text role{};  ///< default empty
  /// The rank that keeps the launcher's standard output and error, for a progress bar
  /// (launch_local).
  std::optional<std::uint32_t> foreground{};
  /// Threads of their own for links. Unset: the worker's thread reads and writes the links when it
  /// is at its loop, and a helper does while that thread computes. 0: the same without the helper,
  /// so a long computation stalls the links; accepting, greeting and signs of life go on.
  std::optional<unsigned> io_threads{};
  unsigned compute_threads = 0;  ///< for plain functions; 0: cores / workers on this host
  /// Threads that libtorch may use for one operation, on each thread of a worker. 0:
  /// OMP_NUM_THREADS; if it is not set, cores / workers on this host / compute_threads, at least 1.
  unsigned intra_op_threads = 0;
  /// Called on every thread of a worker before its first work; must not throw.
  std::function<void()> thread_starts{};
  duration call_deadline = std::chrono::seconds(60);
  duration rendezvous_deadline = std::chrono::seconds(60);
  duration handshake_deadline = std::chrono::seconds(5);
  duration shutdown_deadline = std::chrono::seconds(30);
  /// If rank 0's main has returned, rank 0 prints after this time which mains it waits for, then
  /// again every `still_waiting`; 0: never.
  duration waiting = std::chrono::seconds(10);
  duration still_waiting = std::chrono::seconds(60);
  /// A link is lost if its peer takes nothing of what is written to it for this time, or begins a
  /// frame and sends no more of it.
  duration stall_limit = std::chrono::seconds(30);
  /// A peer from which nothing comes for this time is lost; 0: never, for debuggers. Quiet links
  /// ping every fifth of this time, at least every 2 s. The same in all workers.
  duration lost_after = std::chrono::seconds(10);
  /// Whether the run goes on without a worker that is lost, or whose main throws: by its role. A
  /// worker is lost if it died, cannot be reached, gives no sign of life, has not greeted rank 0 by
  /// the rendezvous deadline, or does not answer at the end of the run. The loss of rank 0 always
  /// ends the run. If the run goes on, calls to the lost worker fail with peer_died, and uses of
  /// its objects with rref_owner_died. A main that does not catch these has failed itself. The end
  /// of the run does not wait for posts from or to the lost worker. If the lost worker lives, its
  /// own run ends with an error. The same in all workers.
  loss_policy on_loss{};
  /// Bytes that each peer may make this worker hold: its requests that have not begun, and replies
  /// that it does not take. An empty request counts 1 KiB.
  std::uint64_t window_bytes = 256u << 20;
  std::size_t outbox_frames = 64 * 1024;    ///< per link
  std::uint64_t outbox_bytes = 256u << 20;  ///< per link
  /// A message whose tensors take so many bytes or more sends them by a second connection, which is
  /// opened for the first such message: what is small does not wait behind them. The largest
  /// number: there is no second one.
  std::uint64_t bulk_bytes = 2u << 20;
  std::size_t buffer_cache_bytes = std::size_t{1} << 30;  ///< receive buffers kept for reuse
  duration buffer_cache_idle = std::chrono::seconds(10);  ///< ... until idle for about so long
  limits bounds{};
};

}  // namespace weft
