// SPDX-License-Identifier: BSL-1.0
// The workers of this process.
#pragma once

#include <weft/config.hpp>
#include <weft/rpc/fwd.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace weft::detail {

/// Each is in it while it lives. Any thread.
class process_workers {
 public:
  static void add(worker& one) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&one);
  }
  static void remove(worker& one) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &one);
  }
  /// Whether `is(worker)` for any; nothing dies meanwhile.
  template <class Is>
  [[nodiscard]] static bool any(Is&& is) {
    const std::lock_guard lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](worker* w) { return is(*w); });
  }
  /// The only one, or null, and how many there are.
  [[nodiscard]] static worker* only(std::size_t& count) {
    const std::lock_guard lock(mutex_);
    count = all_.size();
    return count == 1 ? all_.front() : nullptr;
  }

 private:
  WEFT_PROCESS_WIDE inline static std::mutex mutex_;
  WEFT_PROCESS_WIDE inline static std::vector<worker*> all_;
};

}  // namespace weft::detail
