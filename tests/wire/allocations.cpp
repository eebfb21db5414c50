// SPDX-License-Identifier: BSL-1.0
#include "allocations.hpp"

#include <weft/core/detail/thread_sanitizer.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

namespace weft_test {
allocation_count& allocations() noexcept {
  thread_local allocation_count count;
  return count;
}
}  // namespace weft_test

// ThreadSanitizer's runtime library defines these itself: there, nothing is counted.
#if !defined(WEFT_THREAD_SANITIZER)
void* operator new(std::size_t size) {
  auto& count = weft_test::allocations();
  ++count.calls;
  count.bytes += size;
  if (size > count.largest) count.largest = size;
  if (void* p = std::malloc(size > 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace {
struct small {
  std::int64_t id;
  double weight;
  std::string name;
};
}  // namespace

TEST_CASE("allocations: a small message costs none in steady state") {
  const small value{7, 0.5, "short"};
  const std::byte* head = nullptr;
  auto once = [&] {
    weft::message m;
    weft::encode_all(m.payload(), value, 3, true);
    weft::incoming_message in(std::move(m).finish({}));
    REQUIRE(in.check());
    head = in.whole().head.data();
    weft::reader r = in.payload();
    return std::get<0>(weft::decode_all<small, int, bool>(r)).id;
  };
  CHECK(once() == 7);
  const std::byte* const first = head;
  const auto before = weft_test::allocations().calls;
  std::int64_t sum = 0;
  bool same_block = true;
  for (int i = 0; i < 1000; ++i) {
    sum += once();
    same_block = same_block && head == first;
  }
  const auto after = weft_test::allocations().calls;
  CHECK(sum == 7000);
#ifndef WEFT_DISABLE_BLOCK_RECYCLING  // else process/allocations sees that blocks come back
  CHECK(same_block);
#endif
  CHECK(after - before <= 1);  // doctest's REQUIRE may keep one
}
