// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/bytes.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace wire_bytes {

using weft::detail::block_cache;

// As weft's own, which recycle nothing under a sanitizer.
void* recycled_new(std::size_t size) {
  void* const block = size <= block_cache::block_size ? block_cache::mine().acquire() : nullptr;
  return block ? block : std::malloc(std::max(size, block_cache::block_size));
}
void recycled_delete(void* block, std::size_t size) {
  if (size > block_cache::block_size || !block_cache::mine().release(block)) std::free(block);
}

/// Uses blocks when its thread ends, after whatever was made later on that thread is gone.
struct late_user {
  ~late_user() {
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) {
      blocks.push_back(recycled_new(64));
      std::memset(blocks.back(), i, block_cache::block_size);
    }
    for (void* b : blocks) recycled_delete(b, 64);
  }
  void touch() const noexcept {}
};

TEST_CASE("bytes: blocks that a thread kept are gone with it, even for what ends after them") {
  for (const int kept : {0, 1, 63, 64, 100}) {
    CAPTURE(kept);
    std::thread([kept] {
      thread_local const late_user user;
      user.touch();
      std::vector<void*> blocks;
      for (int i = 0; i < kept; ++i) blocks.push_back(recycled_new(64));
      for (void* b : blocks) recycled_delete(b, 64);
    }).join();
  }
}

TEST_CASE("bytes: a small block that was given back is the next that is taken") {
  void* const first = recycled_new(64);
  recycled_delete(first, 64);
  void* const second = recycled_new(1024);
  CHECK(second == first);
  recycled_delete(second, 1024);
  void* const large = recycled_new(1025);
  CHECK(large != first);
  recycled_delete(large, 1025);
}

}  // namespace wire_bytes
