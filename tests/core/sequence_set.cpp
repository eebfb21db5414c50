// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/sequence_set.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

TEST_CASE("sequence_set: in any order, twice, and from where the sequence begins") {
  weft::detail::sequence_set<std::uint32_t> seen(1);
  CHECK(seen.contains(0));
  CHECK_FALSE(seen.contains(1));
  for (const std::uint32_t n : {3u, 2u, 5u, 3u}) {
    seen.insert(n);
    CHECK(seen.contains(n));
    CHECK(seen.next() == 1);
  }
  seen.insert(1);
  CHECK(seen.next() == 4);
  seen.insert(2);
  CHECK_FALSE(seen.contains(4));
  seen.insert(std::numeric_limits<std::uint32_t>::max());
  seen.insert(4);
  CHECK(seen.next() == 6);
  CHECK(seen.contains(std::numeric_limits<std::uint32_t>::max()));
}
