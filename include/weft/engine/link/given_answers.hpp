// SPDX-License-Identifier: BSL-1.0
// Calls whose callers have given the memory for the result's tensors.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/given_memory.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::engine {

/// Any thread. There are few of them at a time.
class given_answers {
 public:
  /// For that call, and for no earlier attempt any more.
  void add(std::uint64_t call, intrusive_ptr<given_memory> where) {
    remove(*where);
    const std::lock_guard lock(mutex_);
    all_.emplace_back(call, std::move(where));
    any_.store(true, std::memory_order_relaxed);
  }
  void remove(const given_memory& where) noexcept {
    const std::lock_guard lock(mutex_);  // the caller holds it, too, so that nothing dies here
    std::erase_if(all_, [&where](const entry& e) { return e.second.get() == &where; });
    any_.store(!all_.empty(), std::memory_order_relaxed);
  }
  /// Null: that call has none.
  [[nodiscard]] intrusive_ptr<given_memory> find(std::uint64_t call) const {
    if (!any_.load(std::memory_order_relaxed)) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(all_.begin(), all_.end(), [call](const entry& e) { return e.first == call; });
    return at == all_.end() ? nullptr : at->second;
  }

 private:
  using entry = std::pair<std::uint64_t, intrusive_ptr<given_memory>>;

  mutable std::mutex mutex_;
  std::vector<entry> all_;
  std::atomic<bool> any_{false};
};

}  // namespace weft::engine
