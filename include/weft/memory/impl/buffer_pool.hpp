// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/memory/buffer_pool.hpp.
#pragma once

#include <weft/memory/buffer_pool.hpp>
#include <weft/wire/detail/ask_for_memory.hpp>

#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace weft {
namespace detail {

inline constexpr std::size_t pool_header = 64;
inline constexpr std::size_t pool_alignment = 64;
inline constexpr std::size_t mapped_from = std::size_t{1} << 20;

// Size classes: 256 bytes, then four steps for each doubling.
struct size_class {
  static constexpr std::size_t smallest_log = 8;
  static constexpr std::size_t count = (47 - smallest_log) * 4 + 1;
  std::size_t index = 0;
  std::size_t capacity = std::size_t{1} << smallest_log;

  // Requires bytes <= 2^47.
  static constexpr size_class of(std::size_t bytes) noexcept {
    size_class result;
    if (bytes <= result.capacity) return result;
    const auto log = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^log < bytes
    const std::size_t step = std::size_t{1} << (log - 2);
    const std::size_t steps = (bytes - (std::size_t{1} << log) + step - 1) / step;  // 1 to 4
    result.index = (log - smallest_log) * 4 + steps;
    result.capacity = (std::size_t{1} << log) + steps * step;
    return result;
  }
};

[[nodiscard]] inline void* fresh_memory(std::size_t size) {
#if defined(__linux__)
  if (size >= mapped_from) {
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    ::madvise(p, size, MADV_HUGEPAGE);  // a wish: fewer faults while it is filled first
    return p;
  }
#endif
  void* p = std::aligned_alloc(pool_alignment, size);
  if (!p) throw std::bad_alloc();
  return p;
}

inline void give_back_memory(void* p, std::size_t size) noexcept {
#if defined(__linux__)
  if (size >= mapped_from) {
    ::munmap(p, size);
    return;
  }
#endif
  (void)size;
  std::free(p);
}

// A free block's first bytes.
struct free_block {
  free_block* next;
  std::chrono::nanoseconds idle_since;
  static constexpr auto not_noticed = std::chrono::nanoseconds::min();
};

class pool_state final : public ref_counted {
 public:
  explicit pool_state(std::size_t max_cached) noexcept : max_cached_(max_cached) {}
  ~pool_state() override {
    release_idle(std::chrono::nanoseconds::max(), std::chrono::nanoseconds(0));
  }

  [[nodiscard]] void* acquire(size_class c) {
    {
      const std::lock_guard lock(mutex_);
      stats_.used_bytes += c.capacity;
      if (free_block* block = free_[c.index]) {
        free_[c.index] = block->next;
        stats_.cached_bytes -= c.capacity;
        ++stats_.hits;
        return block;
      }
      ++stats_.misses;
    }
    try {
      return fresh_memory(pool_header + c.capacity);
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(mutex_);
      stats_.used_bytes -= c.capacity;
      throw;
    }
  }

  void recycle(void* memory, size_class c) noexcept {
    {
      const std::lock_guard lock(mutex_);
      stats_.used_bytes -= c.capacity;
      if (c.capacity <= max_cached_ - stats_.cached_bytes) {
        free_[c.index] = ::new (memory) free_block{free_[c.index], free_block::not_noticed};
        stats_.cached_bytes += c.capacity;
        return;
      }
    }
    give_back_memory(memory, pool_header + c.capacity);
  }

  // Each list is ordered by the time of return, the latest first: what is too old is a tail.
  std::size_t release_idle(std::chrono::nanoseconds now, std::chrono::nanoseconds older_than) {
    std::size_t freed = 0;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      free_block* tail = nullptr;
      std::size_t capacity = 0;
      {
        const std::lock_guard lock(mutex_);
        free_block** link = &free_[i];
        for (; *link; link = &(*link)->next) {
          if ((*link)->idle_since == free_block::not_noticed) (*link)->idle_since = now;
          if (now - (*link)->idle_since >= older_than) break;
        }
        tail = std::exchange(*link, nullptr);
        capacity = capacity_of(i);
        for (free_block* b = tail; b; b = b->next) {
          stats_.cached_bytes -= capacity;
          freed += capacity;
        }
      }
      while (tail) give_back_memory(std::exchange(tail, tail->next), pool_header + capacity);
    }
    return freed;
  }

  [[nodiscard]] buffer_pool::statistics stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  static constexpr std::size_t capacity_of(std::size_t index) noexcept {
    const std::size_t low = std::size_t{1} << size_class::smallest_log;
    if (index == 0) return low;
    const std::size_t base = low << ((index - 1) / 4);
    return base + ((index - 1) % 4 + 1) * (base / 4);
  }

  mutable std::mutex mutex_;
  std::array<free_block*, size_class::count> free_{};
  std::size_t max_cached_;
  buffer_pool::statistics stats_;
};

// Lies in its block's header; its deletion returns the block.
class pool_block final : public blob_owner {
 public:
  pool_block(intrusive_ptr<pool_state> state, size_class c) noexcept
      : state_(std::move(state)), class_(c) {}
  [[nodiscard]] std::byte* data() noexcept {
    return reinterpret_cast<std::byte*>(this) + pool_header;
  }

  static void operator delete(pool_block* block, std::destroying_delete_t) noexcept {
    const intrusive_ptr<pool_state> state = std::move(block->state_);
    const size_class c = block->class_;
    block->~pool_block();
    state->recycle(block, c);
  }

 private:
  intrusive_ptr<pool_state> state_;
  size_class class_;
};
static_assert(sizeof(pool_block) <= pool_header && sizeof(free_block) <= pool_header);

}  // namespace detail

inline buffer_pool::buffer_pool(std::size_t max_cached)
    : state_(make_intrusive<detail::pool_state>(max_cached)) {}

inline blob buffer_pool::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  if (bytes > std::size_t{1} << 47) throw std::bad_alloc();
  detail::ask_for_tensor_memory();
  const auto c = detail::size_class::of(bytes);
  void* memory = state_->acquire(c);
  auto* block = ::new (memory) detail::pool_block(state_, c);
  return blob(block->data(), bytes, intrusive_ptr<blob_owner>(block));
}

inline std::size_t buffer_pool::release_idle(std::chrono::nanoseconds now,
                                             std::chrono::nanoseconds older_than) {
  return state_->release_idle(now, older_than);
}

inline std::size_t buffer_pool::trim() {
  return state_->release_idle(std::chrono::nanoseconds(0), std::chrono::nanoseconds::min());
}

inline buffer_pool::statistics buffer_pool::stats() const { return state_->stats(); }

}  // namespace weft
