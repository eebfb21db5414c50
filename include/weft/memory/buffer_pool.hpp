// SPDX-License-Identifier: BSL-1.0
// Recycled receive buffers: receiving into used memory is several times faster than into fresh
// memory, because its pages are warm.
//
//   block   | header 64 | data, 64-byte aligned ... |   in use: owner of its blob
//                                                       free:   link of its size class
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/blob.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

namespace detail {
class pool_state;
}

/// A handle to a pool: copies share it, and blobs may outlive all copies. Any thread may call every
/// member; no member waits longer than for a short lock. Only the constructor and `allocate` throw,
/// and only std::bad_alloc.
///
///   weft::buffer_pool pool;
///   weft::blob b = pool.allocate(1 << 20);  // goes back to the pool with its last copy
class buffer_pool {
 public:
  struct statistics {
    std::uint64_t hits = 0;        ///< allocations served by a recycled block
    std::uint64_t misses = 0;      ///< ... by fresh memory
    std::size_t used_bytes = 0;    ///< capacity of the blocks handed out
    std::size_t cached_bytes = 0;  ///< capacity of the blocks kept for reuse
  };

  /// At most `max_cached` bytes are kept for reuse.
  explicit buffer_pool(std::size_t max_cached = std::size_t{1} << 30);

  /// `bytes` uninitialised bytes, aligned to 64. Throws std::bad_alloc. Empty for 0 bytes.
  [[nodiscard]] blob allocate(std::size_t bytes);

  /// Frees blocks that were idle for at least `older_than`. `now` is the caller's clock, counted
  /// from any fixed point; it never decreases. Only these calls notice that a block is idle: if
  /// `older_than` > 0, the second call is the earliest that frees it. Returns the bytes freed.
  std::size_t release_idle(std::chrono::nanoseconds now, std::chrono::nanoseconds older_than);

  /// Frees all cached blocks. Returns the bytes freed.
  std::size_t trim();

  [[nodiscard]] statistics stats() const;

 private:
  intrusive_ptr<detail::pool_state> state_;
};

}  // namespace weft

#include <weft/memory/impl/buffer_pool.hpp>
