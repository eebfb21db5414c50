// SPDX-License-Identifier: BSL-1.0
// How the cores of this host are shared out: to workers, to their pools, to libtorch's own threads.
#pragma once

#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include <sched.h>

namespace weft::engine {

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

/// What OMP_NUM_THREADS says about teams that are not nested; nothing if it says no number.
[[nodiscard]] inline std::optional<unsigned> openmp_threads_wanted() noexcept {
  const char* const value = std::getenv("OMP_NUM_THREADS");  // NOLINT: before any thread changes it
  if (!value) return std::nullopt;
  const std::string_view text(value);
  unsigned threads = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const bool ends = end == text.data() + text.size() || *end == ',';  // "4,2": 4, and 2 inside
  if (ec != std::errc() || !ends || threads == 0 || threads > 0xffff) return std::nullopt;
  return threads;
}

/// With how many threads a library may split one operation on a thread of this worker: the user's
/// choice if it is not 0, else OMP_NUM_THREADS, else this worker's cores over its compute threads.
[[nodiscard]] inline unsigned intra_op_threads(unsigned chosen, unsigned workers_on_this_host,
                                               unsigned compute_threads) noexcept {
  if (chosen != 0) return chosen;
  if (const auto wanted = openmp_threads_wanted()) return *wanted;
  return std::max(1u, cores_each(workers_on_this_host) / std::max(1u, compute_threads));
}

}  // namespace weft::engine
