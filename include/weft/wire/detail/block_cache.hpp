// SPDX-License-Identifier: BSL-1.0
// Small blocks of memory, recycled per thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace weft::detail {

/// A few small blocks kept by each thread, so that a small message costs no allocation. Usable as
/// long as the thread lives, also while its other thread_local objects die.
class block_cache {
 public:
  static constexpr std::size_t block_size = 1024;

  [[nodiscard]] void* acquire() noexcept {
    return count_ - 1 < capacity ? blocks_[--count_] : nullptr;  // neither empty nor closed
  }
  /// False: the block is the caller's to free.
  [[nodiscard]] bool release(void* block) noexcept {
    if (count_ >= capacity) return false;
    if (count_ == 0) static_cast<void>(&thread_end());
    blocks_[count_++] = block;
    return true;
  }
  static block_cache& mine() noexcept {
    static thread_local constinit block_cache cache;
    return cache;
  }

 private:
  /// Has a destructor, which the cache itself must not: it is used after that ran.
  struct closer {
    ~closer() { mine().close(); }
  };
  static closer& thread_end() noexcept {
    static thread_local closer instance;
    return instance;
  }
  void close() noexcept {
    while (count_ > 0) std::free(blocks_[--count_]);
    count_ = closed;
  }

  static constexpr std::size_t capacity = 64;
  static constexpr std::size_t closed = capacity + 1;
  void* blocks_[capacity] = {};
  std::size_t count_ = 0;
};

/// operator new and delete of small objects that come and go with every message.
[[nodiscard]] inline void* recycled_new(std::size_t size) {
  void* block = size <= block_cache::block_size ? block_cache::mine().acquire() : nullptr;
  if (!block) block = std::malloc(size < block_cache::block_size ? block_cache::block_size : size);
  if (!block) throw std::bad_alloc();
  return block;
}
inline void recycled_delete(void* block, std::size_t size) noexcept {
  if (size > block_cache::block_size || !block_cache::mine().release(block)) std::free(block);
}

}  // namespace weft::detail
