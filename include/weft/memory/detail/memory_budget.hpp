// SPDX-License-Identifier: BSL-1.0
// Counts memory that peers make a worker hold: tensors, and arguments of coroutine functions.
#pragma once

#include <weft/core/intrusive_ptr.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft::detail {

/// Outlives links and workers, as tensors do. Thread safe.
class memory_budget : public ref_counted {
 public:
  memory_budget(std::uint64_t limit, intrusive_ptr<memory_budget> parent)
      : limit_(limit), parent_(std::move(parent)) {}
  /// Takes from this budget and its parent, or from none. What is taken is given back.
  [[nodiscard]] bool take(std::uint64_t bytes) noexcept {
    std::uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ || used > limit_ - bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    if (!parent_ || parent_->take(bytes)) return true;
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void give_back(std::uint64_t bytes) noexcept {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (parent_) parent_->give_back(bytes);
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  std::atomic<std::uint64_t> used_{0};
  const std::uint64_t limit_;
  const intrusive_ptr<memory_budget> parent_;
};

/// What was taken of a budget, until it dies.
class held_memory {
 public:
  held_memory() = default;
  held_memory(const held_memory&) = delete;
  held_memory& operator=(const held_memory&) = delete;
  ~held_memory() {
    if (from_) from_->give_back(bytes_);
  }
  /// Once. Takes all or nothing.
  [[nodiscard]] bool take(const intrusive_ptr<memory_budget>& from, std::uint64_t bytes) noexcept {
    if (!from->take(bytes)) return false;
    from_ = from;
    bytes_ = bytes;
    return true;
  }

 private:
  intrusive_ptr<memory_budget> from_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft::detail
