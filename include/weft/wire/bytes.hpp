// SPDX-License-Identifier: BSL-1.0
// A growable, uninitialised byte buffer whose small blocks are recycled per thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace weft {

namespace detail {

/// A few small blocks kept by each thread, so that a small message costs no allocation. Usable as
/// long as the thread lives, also while its other thread_local objects die.
class block_cache {
 public:
  static constexpr std::size_t block_size = 1024;

  [[nodiscard]] void* acquire() noexcept {
    return count_ - 1 < slots ? blocks_[--count_] : nullptr;  // neither empty nor closed
  }
  /// False: the block is the caller's to free.
  [[nodiscard]] bool release(void* block) noexcept {
    if (count_ >= slots) return false;
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

  static constexpr std::size_t slots = 64;
  static constexpr std::size_t closed = slots + 1;
  void* blocks_[slots] = {};
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

}  // namespace detail

/// Move-only. `size()` bytes are meaningful; growth keeps them and leaves new ones uninitialised.
class bytes {
 public:
  bytes() noexcept = default;
  explicit bytes(std::size_t size) { resize(size); }
  bytes(bytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  bytes& operator=(bytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~bytes() { release(); }

  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<const std::byte> view() const noexcept { return {data_, size_}; }

  void resize(std::size_t size) {
    if (size > capacity_) reserve(size);
    size_ = size;
  }
  void append(const void* source, std::size_t count) {
    if (count == 0) return;
    if (count > capacity_ - size_) reserve(size_ + count);
    std::memcpy(data_ + size_, source, count);
    size_ += count;
  }
  void reserve(std::size_t wanted);

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

inline void bytes::reserve(std::size_t wanted) {
  using detail::block_cache;
  if (wanted <= capacity_) return;
  std::size_t capacity = block_cache::block_size;
  void* fresh = nullptr;
  if (wanted <= capacity) {
    fresh = block_cache::mine().acquire();
  } else {
    capacity = wanted > 2 * capacity_ ? wanted : 2 * capacity_;
  }
  if (!fresh) fresh = std::malloc(capacity);
  if (!fresh) throw std::bad_alloc();
  if (size_ > 0) std::memcpy(fresh, data_, size_);
  release();
  data_ = static_cast<std::byte*>(fresh);
  capacity_ = capacity;
}

inline void bytes::release() noexcept {
  if (!data_) return;
  if (capacity_ != detail::block_cache::block_size || !detail::block_cache::mine().release(data_)) {
    std::free(data_);
  }
  data_ = nullptr;
}

}  // namespace weft
