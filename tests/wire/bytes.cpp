// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/bytes.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace wire_bytes {

using weft::detail::recycled_delete;
using weft::detail::recycled_new;

/// Uses blocks when its thread ends, after whatever was made later on that thread is gone.
struct late_user {
  ~late_user() {
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) {
      blocks.push_back(recycled_new(64));
      std::memset(blocks.back(), i, weft::detail::block_cache::block_size);
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
