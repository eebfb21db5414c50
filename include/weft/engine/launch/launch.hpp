// SPDX-License-Identifier: BSL-1.0
// Room launch: processes of one machine. This file starts the program again, once per worker;
// supervisor.hpp watches over the processes: begin there. Around it: which worker a process is
// (placement.hpp), what its launcher sees of it (run_report.hpp), which failure came first
// (first_failure.hpp), what the machine gives (usable_cores.hpp, descriptor_limit.hpp). No worker,
// link or libtorch; of weft it includes core/ and rpc/.
#pragma once

#include <weft/config.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/placement.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// Which worker this process is: reads the environment of torchrun (and launch_local), Open MPI,
/// MPICH and Slurm, in that order; nothing if no launcher started this process. Throws rpc_error
/// invalid_argument.
[[nodiscard]] WEFT_DECL std::optional<placement> placement_from_environment();

struct launch_options {
  std::uint32_t workers = 1;  ///< at most max_workers_per_host (options.hpp)
  /// Names for the log's prefixes and the report of a failure; default "worker<rank>".
  std::function<std::string(std::uint32_t rank, std::uint32_t size)> name{};
  /// Takes each line that a worker prints, instead of printing it with its prefix.
  std::function<void(std::uint32_t rank, std::string_view line)> on_line{};
  /// Without which workers the run goes on (options::on_loss); default, and rank 0: without none.
  std::function<bool(std::uint32_t rank)> may_go{};
  /// A worker that keeps this process's standard output and error, for a progress bar say.
  std::optional<std::uint32_t> foreground{};
  /// How long the others may take to end once one has ended well: what `run` promises them ...
  duration shutdown = std::chrono::seconds(30);
  /// ... and how much more than that, or after one has failed.
  duration grace = std::chrono::seconds(10);
};

/// Runs this program again as `o.workers` processes with RANK, WORLD_SIZE and a meeting point in
/// their environment, prints what they print with a prefix, and waits for their end. The worker
/// that failed is named on standard error: the one that was killed, threw, or left early, not the
/// first to exit. One that `may_go` is named, too, but the run goes on without it, and it does not
/// change the exit status. Whoever does not end in time, because it hangs or is stopped, is killed
/// and named. SIGINT and SIGTERM stop them all within 2 s, and are named, also where this thread
/// blocks them; they die with this process. What the program had made of these two and of SIGCHLD
/// is back afterwards, and does nothing meanwhile. Children may be waited for by others, too; how
/// those ended that they collect, nobody can say but the worker's own report.
/// The workers begin with no signal blocked. What they start are no workers of this run: a program
/// of weft runs there as its own, and may launch workers, whose own may not.
/// Returns the exit status: 0, 1 if a worker failed or standard output was closed, 128 + the signal
/// that ended the run (130 for SIGINT, 143 for SIGTERM). For the program's first process, which
/// `placement_from_environment()` tells, only. Throws std::system_error and rpc_error if processes
/// cannot be started; invalid_argument: too many workers, or a worker launches.
[[nodiscard]] WEFT_DECL int launch_local(launch_options o);

/// The same with what `o` says: workers, names, roles, on_loss, foreground, shutdown_deadline.
///
///   if (!weft::placement_from_environment()) return weft::launch_local(o);   // at the top of main
[[nodiscard]] WEFT_DECL int launch_local(const options& o);

}  // namespace weft
