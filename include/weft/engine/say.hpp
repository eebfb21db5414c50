// SPDX-License-Identifier: BSL-1.0
// What a worker tells its user, on standard error.
#pragma once

#include <weft/engine/fwd.hpp>

#include <cstdint>
#include <iostream>
#include <mutex>
#include <set>
#include <string>

namespace weft::engine {

/// One sentence on standard error, in one piece.
inline void say(const std::string& who, const std::string& what) {
  std::cerr << "weft: " + who + ": " + what + "\n" << std::flush;
}

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

}  // namespace weft::engine
