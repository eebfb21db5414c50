// SPDX-License-Identifier: BSL-1.0
// weft's side of the rows: workers, of which the first runs a job against the others.
#pragma once

#include "harness.hpp"
#include "process.hpp"
#include <weft/run.hpp>

#include <asio/awaitable.hpp>

#include <optional>
#include <string>

namespace bench {

/// inproc: both workers are threads of one process, so its "cpu" counts both ends.
enum class link_kind { inproc, unix_socket, tcp };

std::string name_of(link_kind over);

/// Runs at the caller; the callee serves. Leaves its figures in `out`.
using job = asio::awaitable<void> (*)(weft::worker& me, figures& out);

inline constexpr int callee_rank = 1;

/// weft::options::io_threads; none: as a user has it who says nothing.
using threads_of_links = std::optional<unsigned>;
inline constexpr std::nullopt_t by_default = std::nullopt;

/// Starts two workers that know no other transport and runs `what` at the one that is this
/// process. Throws what it threw, or says that the run failed.
figures between(link_kind over, placement where, threads_of_links io_threads, job what);

/// The same with so many workers; this process has rank 0, or over inproc all ranks, each with
/// threads that are placed as a caller is. Else the others are processes, placed as a callee is.
figures among(unsigned workers, link_kind over, placement where, threads_of_links io_threads,
              job what);

/// The same as a run of the bench, "weft <name>".
run_ptr weft_run(const std::string& name, link_kind over, placement where,
                 threads_of_links io_threads, job what);

}  // namespace bench
