// SPDX-License-Identifier: BSL-1.0
// A first-in first-out ring of frames that keeps its memory: no allocation in steady state.
#pragma once

#include <weft/wire/frame.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft {

/// Not thread safe: its owner locks. Grows by doubling. The memory of a burst is freed later: when
/// the queue is empty again after it held far fewer frames.
class frame_queue {
 public:
  frame_queue() = default;
  frame_queue(frame_queue&& other) noexcept { swap(other); }
  frame_queue& operator=(frame_queue&& other) noexcept {
    swap(other);
    return *this;
  }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Frames that it can hold without allocating.
  [[nodiscard]] std::size_t capacity() const noexcept { return ring_.size(); }
  [[nodiscard]] const frame& operator[](std::size_t i) const noexcept { return ring_[slot(i)]; }
  [[nodiscard]] frame& operator[](std::size_t i) noexcept { return ring_[slot(i)]; }

  void push(frame&& f) {
    if (size_ == ring_.size()) grow();
    ring_[slot(size_)] = std::move(f);
    most_ = std::max(most_, ++size_);
  }
  /// Requires !empty().
  [[nodiscard]] frame pop() noexcept {
    frame f = std::move(ring_[first_]);
    first_ = slot(1);
    if (--size_ == 0) rest();
    return f;
  }
  void swap(frame_queue& other) noexcept {
    ring_.swap(other.ring_);
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    std::swap(most_, other.most_);
  }

 private:
  [[nodiscard]] std::size_t slot(std::size_t i) const noexcept {
    return (first_ + i) & (ring_.size() - 1);
  }
  void grow() {
    std::vector<frame> larger(ring_.empty() ? 16 : 2 * ring_.size());
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move(ring_[slot(i)]);
    ring_.swap(larger);
    first_ = 0;
  }

  void rest() noexcept {
    const std::size_t needed = std::exchange(most_, 0);
    if (ring_.size() <= always_kept || needed > ring_.size() / 8) return;
    std::vector<frame>().swap(ring_);
    first_ = 0;
  }

  static constexpr std::size_t always_kept = 256;
  std::vector<frame> ring_;  // a power of two, or empty
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  std::size_t most_ = 0;  // that it held since it was empty
};

}  // namespace weft
