// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/detail/block_cache.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <semaphore>
#include <thread>
#include <vector>

namespace {

using weft::detail::block_cache;

TEST_CASE("blocks: what one thread acquires and another one releases comes back") {
  constexpr int rounds = 100;
  constexpr int each = 50;
  std::vector<void*> on_their_way;
  std::counting_semaphore<> there(0), back(0);
  int fresh = 0;
  std::thread reader([&] {
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < each; ++i) {
        void* block = block_cache::mine().acquire();
        if (!block) {
          block = std::malloc(block_cache::block_size);
          ++fresh;
        }
        on_their_way.push_back(block);
      }
      there.release();
      back.acquire();
    }
  });
  for (int round = 0; round < rounds; ++round) {
    there.acquire();
    for (void* const block : on_their_way) {
      if (!block_cache::mine().release(block)) std::free(block);
    }
    on_their_way.clear();
    back.release();
  }
  reader.join();
  // As many as are on their way at once, and what the two caches and the depot may hold meanwhile;
  // not one for each of 5000.
  CHECK(fresh < 250);
}

}  // namespace
