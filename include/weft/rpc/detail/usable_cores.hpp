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

}  // namespace weft::detail
