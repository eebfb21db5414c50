// SPDX-License-Identifier: BSL-1.0
// The workers of this process.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/rpc/fwd.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace weft::detail {

/// Each is in it while it lives. Any thread.
class process_workers {
 public:
  /// `name` lives as long as it does.
  static void add(worker& one, const std::string& name) {
    const std::lock_guard lock(mutex_);
    all_.push_back({&one, name.c_str()});
    tell_names();
  }
  static void remove(worker& one) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const entry& e) { return e.who == &one; });
    tell_names();
  }
  /// Whether `is(worker)` for any; nothing dies meanwhile.
  template <class Is>
  [[nodiscard]] static bool any(Is&& is) {
    const std::lock_guard lock(mutex_);
    return std::any_of(all_.begin(), all_.end(), [&](const entry& e) { return is(*e.who); });
  }
  /// The only one, or null, and how many there are.
  [[nodiscard]] static worker* only(std::size_t& count) {
    const std::lock_guard lock(mutex_);
    count = all_.size();
    return count == 1 ? all_.front().who : nullptr;
  }

 private:
  struct entry {
    worker* who;
    const char* name;
  };
  /// Under the lock.
  static void tell_names() noexcept {
    process_name::newest.store(all_.empty() ? nullptr : all_.back().name);
    process_name::workers.store(static_cast<unsigned>(all_.size()));
  }

  WEFT_PROCESS_WIDE inline static std::mutex mutex_;
  WEFT_PROCESS_WIDE inline static std::vector<entry> all_;
};

}  // namespace weft::detail
