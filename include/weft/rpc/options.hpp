// SPDX-License-Identifier: BSL-1.0
// What a worker can be told; examples/guide/options.md has a table of them.
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

/// More workers than this `run` starts on no host: more are taken for a slip. Each keeps about
/// 4 KiB for each of the others, so as many threads of one process need 4 GiB.
inline constexpr std::uint32_t max_workers_per_host = 1024;

struct options {
  /// Workers to start when nothing else did (no RANK in the environment); 0: one. At most
  /// `max_workers_per_host`.
  std::uint32_t workers = 0;
  /// Which worker this is; default: what the environment says. For programs that are started in
  /// ways of their own, and several workers of one process (weft::join).
  std::optional<placement> place{};
  /// What tells this run from others that meet at the same place; default: WEFT_RUN_ID, else what
  /// the launcher calls the run.
  std::string run_id{};
  per_worker_text name{};  ///< default "worker<rank>"
  per_worker_text role{};  ///< default empty
  /// A worker that keeps this program's own standard output, for a progress bar (launch_local).
  std::optional<std::uint32_t> foreground{};
  /// Threads of their own for links. Unset: the worker's thread reads and writes them when it is at
  /// its loop, and a helper does while it computes. 0: the same without that helper, so that a long
  /// computation stalls the links, save for accepting, greeting and signs of life.
  std::optional<unsigned> io_threads{};
  unsigned compute_threads = 0;  ///< for plain functions; 0: cores / workers on this host
  /// Into how many threads libtorch may split one operation, on each of a worker's threads.
  /// 0: OMP_NUM_THREADS, without it cores / workers on this host / compute_threads, at least 1.
  unsigned intra_op_threads = 0;
  /// Called on every thread of a worker before its first work; must not throw.
  std::function<void()> thread_starts{};
  duration call_deadline = std::chrono::seconds(60);
  duration rendezvous_deadline = std::chrono::seconds(60);
  duration handshake_deadline = std::chrono::seconds(5);
  duration shutdown_deadline = std::chrono::seconds(30);
  /// Rank 0, when its main has returned, says on standard error after so long whose mains it waits
  /// for, and every `still_waiting` from then on; 0: never.
  duration waiting = std::chrono::seconds(10);
  duration still_waiting = std::chrono::seconds(60);
  duration stall_limit = std::chrono::seconds(30);  ///< a begun frame without progress
  /// A peer of which nothing comes for so long is lost; 0: never, for debuggers. Quiet links ping
  /// every fifth of it, at most every 2 s. The same in all workers.
  duration lost_after = std::chrono::seconds(10);
  /// Whether the run goes on without a worker that is lost (it died, cannot be reached, gives no
  /// sign of life, had not greeted rank 0 by the rendezvous deadline, or does not answer at the end
  /// of the run), or whose main throws: by its role. The loss of rank 0 always ends the run. To the
  /// others, calls to it fail with peer_died, references to what it owned with rref_owner_died, and
  /// what it posted, or was posted to it, is not waited for; a main that does not catch that has
  /// failed itself. The lost worker, if it lives, ends its own run with an error. The same in all
  /// workers.
  loss_policy on_loss{};
  /// What each peer may make this worker hold: bytes of requests that have not begun, and of
  /// replies that it does not take. An empty request counts 1 KiB.
  std::uint64_t window_bytes = 256u << 20;
  std::size_t outbox_frames = 64 * 1024;                  ///< per link
  std::uint64_t outbox_bytes = 256u << 20;                ///< per link
  std::size_t buffer_cache_bytes = std::size_t{1} << 30;  ///< receive buffers kept for reuse
  duration buffer_cache_idle = std::chrono::seconds(10);  ///< ... until idle for about so long
  limits bounds{};
};

}  // namespace weft
