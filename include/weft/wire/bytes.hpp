// SPDX-License-Identifier: BSL-1.0
// A growable, uninitialised byte buffer whose small blocks are recycled per thread.
#pragma once

#include <weft/wire/detail/block_cache.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace weft {

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
  /// Little-endian, of fixed width.
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void number(T value) {
    append(&value, sizeof value);
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
    fresh = detail::recycled_block();
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
  capacity_ == detail::block_cache::block_size ? detail::recycle(data_) : std::free(data_);
  data_ = nullptr;
}

}  // namespace weft
