// SPDX-License-Identifier: BSL-1.0
// weft's side of the rows: two workers, one of which runs a job against the other.
#pragma once

#include "harness.hpp"
#include "process.hpp"
#include <weft/run.hpp>

#include <asio/awaitable.hpp>

#include <string>

namespace bench {

/// inproc: both workers are threads of one process, so its "cpu" counts both ends.
enum class link_kind { inproc, unix_socket, tcp };

std::string name_of(link_kind over);

/// Runs at the caller; the callee serves. Leaves its figures in `out`.
using job = asio::awaitable<void> (*)(weft::worker& me, figures& out);

inline constexpr int callee_rank = 1;

/// Starts two workers that know no other transport and runs `what` at the one that is this
/// process. Throws what it threw, or says that the run failed.
figures between(link_kind over, placement where, unsigned io_threads, job what);

/// Starts so many workers, threads of one process, and runs `what` at rank 0; the others serve.
figures among(unsigned workers, job what);

/// The same as a run of the bench, "weft <name>".
run_ptr weft_run(const std::string& name, link_kind over, placement where, unsigned io_threads,
                 job what);

}  // namespace bench
