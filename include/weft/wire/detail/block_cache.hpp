// SPDX-License-Identifier: BSL-1.0
// Small blocks of memory, recycled per thread. What threads that read acquire, the worker's thread
// releases, request by request: whole batches go back by way of a depot.
//
//   thread: [ up to 64 blocks ] ──spill 32──► depot ──refill 32──► [ up to 64 blocks ]: thread
#pragma once

#include <weft/config.hpp>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace weft::detail {

/// Batches of free blocks, of all threads of this process. Thread safe.
class block_depot {
 public:
  static constexpr std::size_t batch = 32;
  /// In a free block: the next of its batch and, of a batch's first, the next batch.
  struct link {
    link* next;
    link* next_batch;
  };

  /// Null: there is none.
  [[nodiscard]] static link* take() noexcept {
    const std::lock_guard lock(mutex_);
    if (!first_) return nullptr;
    --batches_;
    return std::exchange(first_, first_->next_batch);
  }
  /// False: it has enough.
  [[nodiscard]] static bool give(link* blocks) noexcept {
    const std::lock_guard lock(mutex_);
    if (batches_ == most_batches) return false;
    ++batches_;
    blocks->next_batch = std::exchange(first_, blocks);
    return true;
  }

 private:
  static constexpr std::size_t most_batches = 64;  // 2 MiB
  WEFT_PROCESS_WIDE inline static constinit std::mutex mutex_;
  WEFT_PROCESS_WIDE inline static constinit link* first_ = nullptr;
  WEFT_PROCESS_WIDE inline static constinit std::size_t batches_ = 0;
};

/// A few small blocks kept by each thread, so that a small message costs no allocation. Usable as
/// long as the thread lives, also while its other thread_local objects die.
class block_cache {
 public:
  static constexpr std::size_t block_size = 1024;

  /// Null: there is none.
  [[nodiscard]] void* acquire() noexcept {
    if (count_ - 1 >= capacity && !refill()) return nullptr;  // empty, or closed
    return blocks_[--count_];
  }
  /// False: the block is the caller's to free.
  [[nodiscard]] bool release(void* block) noexcept {
    if (count_ >= capacity && !spill()) return false;
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
  bool refill() noexcept {
    if (count_ == closed) return false;
    static_cast<void>(&thread_end());
    for (block_depot::link* b = block_depot::take(); b; b = b->next) blocks_[count_++] = b;
    return count_ > 0;
  }
  bool spill() noexcept {
    if (count_ == closed) return false;
    block_depot::link* all = nullptr;
    for (std::size_t i = 1; i <= block_depot::batch; ++i) {
      all = new (blocks_[capacity - i]) block_depot::link{all, nullptr};
    }
    if (!block_depot::give(all)) return false;
    count_ -= block_depot::batch;
    return true;
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

/// A block of the cache; null: there is none. Also where it is defined that nothing is recycled, as
/// what is recycled looks alive to a sanitizer when it is not.
[[nodiscard]] inline void* recycled_block() noexcept {
#ifdef WEFT_DISABLE_BLOCK_RECYCLING
  return nullptr;
#else
  return block_cache::mine().acquire();
#endif
}
/// Of `block_size` bytes.
inline void recycle(void* block) noexcept {
#ifndef WEFT_DISABLE_BLOCK_RECYCLING
  if (block_cache::mine().release(block)) return;
#endif
  std::free(block);
}

/// operator new and delete of small objects that come and go with every message.
[[nodiscard]] inline void* recycled_new(std::size_t size) {
  void* block = size <= block_cache::block_size ? recycled_block() : nullptr;
  if (!block) block = std::malloc(size < block_cache::block_size ? block_cache::block_size : size);
  if (!block) throw std::bad_alloc();
  return block;
}
inline void recycled_delete(void* block, std::size_t size) noexcept {
  size > block_cache::block_size ? std::free(block) : recycle(block);
}

}  // namespace weft::detail
