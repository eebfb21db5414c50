// SPDX-License-Identifier: BSL-1.0
// Asked in front of each request for memory whose size a peer, a tensor or a value decides: in a
// simulated world it may lack, which fails one call. What else weft allocates is not asked for.
#pragma once

#include <weft/config.hpp>
#include <weft/wire/detail/block_cache.hpp>

#include <cstdint>
#include <new>

namespace weft::detail {

/// Who decides it. Counts the requests of its thread.
class memory_decider {
 public:
  [[nodiscard]] virtual bool refuses() noexcept = 0;

 protected:
  ~memory_decider() = default;
};
/// Of this thread; null outside of simulated worlds.
WEFT_PROCESS_WIDE inline constinit thread_local memory_decider* decides_memory = nullptr;

/// For a tensor's buffer. Throws std::bad_alloc.
inline void ask_for_tensor_memory() {
  if (decides_memory && decides_memory->refuses()) throw std::bad_alloc();
}
/// For a value, or the message that has it: a small one takes a recycled block. Throws
/// std::bad_alloc.
inline void ask_for_memory(std::uint64_t bytes) {
  if (bytes > block_cache::block_size) ask_for_tensor_memory();
}

}  // namespace weft::detail
