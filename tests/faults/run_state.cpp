// SPDX-License-Identifier: BSL-1.0
// A run that ends while memory lacks: a step that throws has done nothing, and may be repeated.
#include "shortage.hpp"
#include <weft/rpc/run_state.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <string>

namespace poor_runs {

using weft::run_message;
using weft::run_state;
using weft::testing::shortage;

/// What `end` wants done on that rank of three, whichever of its allocations failed before.
void at_every_point(std::uint32_t rank, std::size_t told,
                    const std::function<run_state::actions(run_state&)>& end) {
  CAPTURE(rank);
  int failed = 0;
  bool struck = true;
  for (long n = 1; struck && n < 50; ++n) {
    CAPTURE(n);
    run_state s(rank, 3);
    run_state::actions out;
    try {
      const shortage now(n, 0);
      out = end(s);
      struck = shortage::struck();
    } catch (const std::bad_alloc&) {
      ++failed;
      CHECK_FALSE(s.over());
      out = end(s);
    }
    CHECK(s.over());
    CHECK(s.failure().has_value());
    CHECK(out.end);
    CHECK(out.send.size() == told);
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

TEST_CASE("shortage: the end of a run can be told again") {
  const std::string why(100, 'x');
  for (const std::uint32_t rank : {0u, 1u}) {
    at_every_point(rank, rank == 0 ? 2 : 1, [&](run_state& s) { return s.main_failed(rank, why); });
  }
  at_every_point(0, 1, [&](run_state& s) { return s.link_lost(2, why); });
  at_every_point(0, 2, [&](run_state& s) { return s.cut(2, why); });
  at_every_point(1, 0, [&](run_state& s) { return s.link_lost(0, why); });
  at_every_point(1, 0,
                 [&](run_state& s) { return *s.received(0, {run_message::kind::lost, 2, why}); });
}

}  // namespace poor_runs
