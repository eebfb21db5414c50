// SPDX-License-Identifier: BSL-1.0
// Waiting for what may never end, while memory lacks.
#include "shortage.hpp"
#include <weft/core/detail/in_time.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>

namespace poor_waits {

using weft::testing::all_of_them;
using weft::testing::shortage;

TEST_CASE("shortage: work that is waited for is done once, with or without a thread for it") {
  std::atomic<int> done{0};
  const std::function<void()> work = [&done] { ++done; };
  const auto soon = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  bool struck = true;
  for (long nth = 1; struck; ++nth) {  // bounded: fewer than ten allocations
    for (const long further : {0L, all_of_them}) {
      CAPTURE(nth);
      done = 0;
      const shortage now(nth, further);
      CHECK(weft::engine::ends_by(soon, work));
      struck = shortage::struck();
      CHECK(done == 1);
    }
  }
}

}  // namespace poor_waits
