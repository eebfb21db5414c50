// SPDX-License-Identifier: BSL-1.0
// Recycled receive buffers: memory whose pages are warm takes bytes several times faster than
// fresh memory.
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

/// A handle: copies share one pool, blobs may outlive all of them. Every member may be called from
/// any thread; none waits for more than a short lock. Only making one and `allocate` throw, and
/// only std::bad_alloc.
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

  /// Frees what has been idle for at least `older_than`. `now` comes from the caller's clock,
  /// counted from any fixed point, and never decreases; idleness is noticed by these calls, so
  /// that a block is freed by the second one at the earliest. Returns the bytes freed.
  std::size_t release_idle(std::chrono::nanoseconds now, std::chrono::nanoseconds older_than);

  /// Frees all that is cached. Returns the bytes freed.
  std::size_t trim();

  [[nodiscard]] statistics stats() const;

 private:
  intrusive_ptr<detail::pool_state> state_;
};

}  // namespace weft

#include <weft/memory/impl/buffer_pool.hpp>
