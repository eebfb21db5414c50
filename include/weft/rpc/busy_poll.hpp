// SPDX-License-Identifier: BSL-1.0
// Serving an io_context without falling asleep at once. The next frame of a conversation often
// comes sooner than an idle core wakes up (some 50 µs on a virtual machine).
#pragma once

#include <weft/core/time.hpp>
#include <weft/rpc/detail/usable_cores.hpp>

#include <asio/io_context.hpp>

#include <chrono>
#include <optional>
#include <thread>

namespace weft::detail {

/// Runs what comes to `context` until it is stopped or has no work left. When there is nothing to
/// do, looks again for as long as `budget` says, giving way to every other thread, and only then
/// sleeps. Without a budget: 50 µs, or 0 on a single core, which whoever it waits for may need.
inline void run_polling(asio::io_context& context, const clock& time,
                        std::optional<duration> budget) {
  constexpr duration usual = std::chrono::microseconds(50);
  const duration most = budget.value_or(usable_cores() > 1 ? usual : duration::zero());
  if (most <= duration::zero()) {
    context.run();
    return;
  }
  while (context.run_one() > 0) {
    for (time_point until = time.now() + most; !context.stopped();) {
      if (context.poll() > 0) {
        until = time.now() + most;
      } else if (time.now() < until) {
        std::this_thread::yield();
      } else {
        break;
      }
    }
  }
}

}  // namespace weft::detail
