// SPDX-License-Identifier: BSL-1.0
// What a worker tells its user.
#pragma once

#include <weft/core/log.hpp>

#include <cstdint>
#include <mutex>
#include <set>

namespace weft::detail {

/// What is said once for each function of this process's worker. Any thread.
class once_each {
 public:
  /// Whether this is the first time for `function`.
  [[nodiscard]] bool first(std::uint64_t function) {
    const std::lock_guard lock(mutex_);
    return said_.insert(function).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> said_;
};

}  // namespace weft::detail
