// SPDX-License-Identifier: BSL-1.0
// How workers of one host meet without a store: in a file that only their user can read.
//
//   <folder for temporary files>/weft-<user>/     0700; locked while a worker takes its seat
//     <key of the run>.<n>                        0600; a line for each worker that is there
//                                                 byte r is locked by the process of rank r
//
// Locks end with their process, so nothing that a killed run leaves behind is mistaken for a run: a
// file in which nobody holds a seat is removed by whoever comes next, and a meeting in which one
// who had come has died fails at once, for all. The file is removed when all are there or one gives
// up, the folder when it is empty.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/placement.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::engine {

class countdown;

/// `option`, which is options.run_id; else WEFT_RUN_ID; else "".
[[nodiscard]] inline std::string run_id_of(const std::string& option) {
  return option.empty() ? environment_text("WEFT_RUN_ID").value_or("") : option;
}

/// What the workers of one run have in common and no other run at the same time has: `run_id`; else
/// the job that mpirun (PMIX_NAMESPACE, PMI_JOBID) or srun (SLURM_JOB_ID with SLURM_STEP_ID) names;
/// else the parent process, for processes that were started by hand together with the command line.
[[nodiscard]] inline std::string run_key(const placement& where, const std::string& run_id);

/// Where workers of this user meet. Throws rpc_error rendezvous_failed without a folder for
/// temporary files.
[[nodiscard]] inline std::filesystem::path meeting_folder();

/// Blocks until `size` workers are there that gave the same `key`, each with one line of text;
/// their lines by rank. Two meetings of one key at once stay apart: a rank that is taken begins
/// another one. Throws rpc_error rendezvous_failed: who is missing at the deadline, or died; all
/// who wait are told the same.
[[nodiscard]] inline std::vector<std::string>
meet_in_file(const std::filesystem::path& folder, const std::string& key, std::uint32_t rank,
             std::uint32_t size, const std::string& line, const countdown& left);

}  // namespace weft::engine

#include <weft/engine/rendezvous/impl/meeting_file.hpp>
