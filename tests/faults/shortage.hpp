// SPDX-License-Identifier: BSL-1.0
// Allocations that fail on one thread, from a chosen one on.
#pragma once

#include <atomic>

namespace weft::testing {

/// As further allocations that fail: all, as long as it lacks.
inline constexpr long all_of_them = 1L << 40;

/// One thread's memory. Any thread may make it lack. Covers operator new, and malloc as weft itself
/// calls it.
class thread_memory {
 public:
  /// Of the calling thread; lives as long as the process.
  [[nodiscard]] static thread_memory& here();
  thread_memory() = default;
  thread_memory(const thread_memory&) = delete;
  thread_memory& operator=(const thread_memory&) = delete;

  /// The n-th allocation from now on fails, and `further` ones right behind it. Counts from 1.
  void lack(long nth, long further = 0) noexcept;
  /// All succeed again. Whether one failed since `lack`.
  bool suffice() noexcept;
  /// Whether one failed since `lack`.
  [[nodiscard]] bool lacked() const noexcept { return hit_.load(); }
  /// Of any thread: an allocation that is about to fail succeeds after all where `spared` says so,
  /// on its thread. It counts as one that failed. Set before any lacks.
  static void spare(bool (*spared)()) noexcept { spared_ = spared; }
  /// Whether the allocation that its thread is about to make fails.
  [[nodiscard]] bool fails() noexcept;

 private:
  std::atomic<long> left_{0};  // until one fails; 0: none will
  std::atomic<long> then_{0};  // that fail behind it
  std::atomic<bool> hit_{false};
  static inline std::atomic<bool (*)()> spared_{nullptr};
  thread_memory* next_ = nullptr;  // of all
};

/// `thread_memory::here()` lacks while it lives.
class shortage {
 public:
  shortage(long nth, long further);
  shortage(const shortage&) = delete;
  shortage& operator=(const shortage&) = delete;
  ~shortage();
  /// Whether one failed.
  [[nodiscard]] static bool struck();
  /// Lasts beyond this object's place: until `disarm`.
  static void arm(long nth, long further);
  static void disarm();
};

}  // namespace weft::testing
