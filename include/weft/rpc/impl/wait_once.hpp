// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/wait.hpp that are compiled once (weft/src_base.hpp).
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/detail/process_workers.hpp>
#include <weft/rpc/wait.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace weft::detail {

/// Blocks until `end` is set. Throws as `weft::wait` says; `me` is looked at every 50 ms. It counts
/// what it has waited: the worker's clock may stand still where nobody runs its loop.
WEFT_DECL void wait_for_end(worker& me, blocking_end& end, duration limit) {
  constexpr duration look = std::chrono::milliseconds(50);
  constexpr duration patience = std::chrono::seconds(1);
  std::optional<duration> idle;  // for so long
  std::uint64_t runs = 0;        // of the loop, when it was last found idle
  for (duration left = std::max(limit, duration::zero());;) {
    const duration waits = std::min(left, look);
    if (end.wait_for(waits)) return;
    left -= waits;
    switch (me.loop()) {
    case worker::loop_state::runs:
      idle.reset();
      break;
    case worker::loop_state::idle:
      // Who polls is inside for moments only.
      if (const std::uint64_t times = me.times_run(); !idle || times != runs) {
        runs = times;
        idle = duration::zero();
      } else {
        *idle += waits;
      }
      if (*idle < patience) break;
      throw rpc_error(errc::invalid_argument,
                      "weft::wait: nobody runs the loop of worker '" + me.name() +
                          "', so the awaited work cannot go on",
                      call_progress::maybe_executed);
    case worker::loop_state::over:
      if (end.wait_for(look)) return;
      throw rpc_error(errc::shutting_down,
                      "weft::wait: the run of worker '" + me.name() + "' is over",
                      call_progress::maybe_executed);
    }
    if (left > duration::zero()) continue;
    throw rpc_error(errc::timed_out, "weft::wait: the awaited work has not ended",
                    call_progress::maybe_executed);
  }
}

/// Throws on a thread that somebody waits for.
WEFT_DECL void require_may_wait() {
  if (!process_workers::any([](worker& w) { return w.needs_this_thread(); })) return;
  throw rpc_error(errc::invalid_argument,
                  "weft::wait would block a thread that runs a worker's loop or its I/O, and the "
                  "awaited work needs that thread: use co_await there");
}

}  // namespace weft::detail
