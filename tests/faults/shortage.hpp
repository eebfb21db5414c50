// SPDX-License-Identifier: BSL-1.0
// Large allocations that fail on one thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace weft::testing {

/// One thread's memory. Any thread may make it lack. Covers operator new, and malloc as weft itself
/// calls it.
class thread_memory {
 public:
  /// Of the calling thread; lives as long as the process.
  [[nodiscard]] static thread_memory& here();
  thread_memory() = default;
  thread_memory(const thread_memory&) = delete;
  thread_memory& operator=(const thread_memory&) = delete;

  /// From now on every allocation of at least so many bytes fails.
  void lack(std::size_t bytes) noexcept {
    failed_ = 0;
    from_ = bytes;
  }
  /// All succeed again. How many have failed since `lack`.
  int suffice() noexcept {
    from_ = static_cast<std::size_t>(-1);
    return failed_;
  }
  /// Whether the allocation that its thread is about to make fails.
  [[nodiscard]] bool fails(std::size_t bytes) noexcept {
    if (bytes < from_) return false;
    ++failed_;
    return true;
  }

 private:
  std::atomic<std::size_t> from_{static_cast<std::size_t>(-1)};
  std::atomic<int> failed_{0};
  thread_memory* next_ = nullptr;  // of all
};

}  // namespace weft::testing
