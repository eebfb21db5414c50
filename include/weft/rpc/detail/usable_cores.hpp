// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <thread>

#include <sched.h>

namespace weft::detail {

/// The cores on which the calling thread may run; at least 1.
[[nodiscard]] inline unsigned usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {  // more cores than the set can name
    return std::max(1u, std::thread::hardware_concurrency());
  }
  return std::max(1u, static_cast<unsigned>(CPU_COUNT(&set)));
}

/// What each of so many workers on this host may use of them; at least 1.
[[nodiscard]] inline unsigned cores_each(unsigned workers) noexcept {
  return std::max(1u, usable_cores() / std::max(1u, workers));
}

}  // namespace weft::detail
