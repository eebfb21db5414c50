// SPDX-License-Identifier: BSL-1.0
#include <weft/memory/buffer_pool.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

TEST_CASE("pool: blobs have the asked size and are aligned to 64") {
  weft::buffer_pool pool;
  for (const std::size_t size : {1u, 63u, 256u, 257u, 4096u, 100'000u, 3'000'000u, 40'000'000u}) {
    const weft::blob b = pool.allocate(size);
    CHECK(b.size() == size);
    CHECK(reinterpret_cast<std::uintptr_t>(b.data()) % 64 == 0);
    std::memset(b.data(), 0xA5, size);
  }
  CHECK(pool.allocate(0).data() == nullptr);
  CHECK(pool.stats().used_bytes == 0);
}

TEST_CASE("pool: a size class holds its size with at most a quarter more") {
  std::size_t last = 0;
  for (std::size_t size = 1; size < (std::size_t{1} << 46); size += size / 13 + 1) {
    const auto c = weft::detail::size_class::of(size);
    CHECK(c.capacity >= size);
    CHECK((size <= 256 || c.capacity <= size + size / 4 + 1));
    CHECK(c.index >= last);
    CHECK(c.index < weft::detail::size_class::count);
    last = c.index;
  }
  CHECK(weft::detail::size_class::of(std::size_t{1} << 47).index < weft::detail::size_class::count);
}

TEST_CASE("pool: a freed block is used again, the latest first") {
  weft::buffer_pool pool;
  const std::byte* address = pool.allocate(5000).data();
  weft::blob again = pool.allocate(4900);
  CHECK(again.data() == address);
  CHECK(pool.stats().hits == 1);
  CHECK(pool.stats().misses == 1);
  weft::blob other = pool.allocate(5000);
  CHECK(other.data() != address);
  const std::byte* latest = other.data();
  again = {};
  other = {};
  CHECK(pool.allocate(5000).data() == latest);
}

TEST_CASE("pool: copies of a blob share the block, which returns with the last one") {
  weft::buffer_pool pool;
  weft::blob a = pool.allocate(1000);
  weft::blob b = a;
  a = {};
  CHECK(pool.stats().cached_bytes == 0);
  b = {};
  CHECK(pool.stats().cached_bytes == weft::detail::size_class::of(1000).capacity);
}

TEST_CASE("pool: never keeps more than its budget") {
  weft::buffer_pool pool(1 << 20);
  {
    std::vector<weft::blob> many;
    for (int i = 0; i < 100; ++i) many.push_back(pool.allocate(30'000));
  }
  CHECK(pool.stats().cached_bytes <= 1 << 20);
  CHECK(pool.stats().cached_bytes > (1 << 20) - 64 * 1024);
  (void)pool.allocate(10 << 20);
  CHECK(pool.stats().cached_bytes <= 1 << 20);
  weft::buffer_pool none(0);
  (void)none.allocate(100);
  CHECK(none.stats().cached_bytes == 0);
}

TEST_CASE("pool: idle blocks are released by the caller's clock, used ones are not") {
  weft::buffer_pool pool;
  const weft::blob held = pool.allocate(1 << 20);
  (void)pool.allocate(2000);
  const std::size_t small = pool.stats().cached_bytes;
  CHECK(pool.release_idle(100s, 10s) == 0);
  {
    const weft::blob young = pool.allocate(100'000);
  }
  CHECK(pool.release_idle(109s, 10s) == 0);
  CHECK(pool.release_idle(110s, 10s) == small);
  CHECK(pool.stats().cached_bytes == weft::detail::size_class::of(100'000).capacity);
  {
    const weft::blob used_again = pool.allocate(100'000);
  }
  CHECK(pool.release_idle(119s, 10s) == 0);
  CHECK(pool.release_idle(130s, 10s) > 0);
  CHECK(pool.stats().cached_bytes == 0);
  std::memset(held.data(), 1, held.size());
}

TEST_CASE("pool: trim frees all that is cached") {
  weft::buffer_pool pool;
  (void)pool.allocate(10'000);
  (void)pool.allocate(10 << 20);
  const std::size_t cached = pool.stats().cached_bytes;
  CHECK(pool.trim() == cached);
  CHECK(pool.stats().cached_bytes == 0);
}

TEST_CASE("pool: blobs outlive the pool") {
  std::optional<weft::buffer_pool> pool(std::in_place);
  weft::blob b = pool->allocate(100'000);
  (void)pool->allocate(1000);
  pool.reset();
  std::memset(b.data(), 7, b.size());
  CHECK(b.data()[99'999] == std::byte{7});
  b = {};
}

TEST_CASE("pool: threads allocate, hand over and free at once") {
  weft::buffer_pool pool(8 << 20);
  std::mutex mutex;
  std::vector<weft::blob> shared;
  std::atomic<int> damaged{0};
  auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const std::size_t size = 1 + random() % 20'000;
      weft::blob b = pool.allocate(size);
      std::memset(b.data(), static_cast<int>(size % 251), size);
      if (i % 97 == 0) (void)pool.release_idle(std::chrono::seconds(i), 1s);
      const std::lock_guard lock(mutex);
      shared.push_back(std::move(b));
      if (shared.size() > 32) {
        std::swap(shared[random() % shared.size()], shared.back());
        const weft::blob last = std::move(shared.back());
        shared.pop_back();
        const auto want = static_cast<std::byte>(last.size() % 251);
        if (last.data()[0] != want || last.data()[last.size() - 1] != want) ++damaged;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  }
  CHECK(damaged == 0);
  shared.clear();
  CHECK(pool.stats().used_bytes == 0);
  CHECK(pool.stats().hits + pool.stats().misses == 4 * 3000);
}
