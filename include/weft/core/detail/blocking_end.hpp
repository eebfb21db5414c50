// SPDX-License-Identifier: BSL-1.0
// The end of some work, for a thread that blocks until then.
#pragma once

#include <weft/core/time.hpp>

#include <condition_variable>
#include <mutex>

namespace weft::detail {

/// Set once, by any thread: what it wrote before is visible to who has seen it.
class blocking_end {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// Until it is set, for a while at most: whether it is.
  [[nodiscard]] bool wait_for(duration most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [this] { return ended_; });
  }
  [[nodiscard]] bool wait_until(time_point when) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, when, [this] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

}  // namespace weft::detail
