// SPDX-License-Identifier: BSL-1.0
// A run that ends while memory lacks: a step that throws has done nothing, and may be repeated.
#include "shortage.hpp"
#include <weft/engine/shutdown/shutdown.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <string>

namespace poor_runs {

using weft::engine::shutdown_message;
using weft::engine::shutdown_protocol;
using weft::testing::shortage;

constexpr std::size_t size = 3;
using ending = std::function<shutdown_protocol::actions(shutdown_protocol&, std::string)>;

/// What `end` wants done on that rank, whichever of its allocations failed before. Its words are
/// there already.
void at_every_point(std::uint32_t rank, std::size_t told, const ending& end,
                    const std::function<void(shutdown_protocol&)>& before = {}) {
  CAPTURE(rank);
  int failed = 0;
  bool struck = true;
  for (long n = 1; struck && n < 50; ++n) {
    CAPTURE(n);
    shutdown_protocol s(rank, size);
    if (before) before(s);
    shutdown_protocol::actions out;
    std::string why(100, 'x');
    try {
      const shortage now(n, 0);
      out = end(s, std::move(why));
      struck = shortage::struck();
    } catch (const std::bad_alloc&) {
      ++failed;
      CHECK_FALSE(s.over());
      out = end(s, std::string(100, 'x'));
    }
    CHECK(s.over());
    CHECK(s.failure().has_value() == !before);
    CHECK(out.end);
    CHECK(out.send.size() == told);
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

TEST_CASE("shortage: the end of a run can be told again") {
  for (const std::uint32_t rank : {0u, 1u}) {
    at_every_point(rank, rank == 0 ? 2 : 1, [&](shutdown_protocol& s, std::string why) {
      return s.main_failed(rank, std::move(why));
    });
  }
  at_every_point(
      0, 1, [](shutdown_protocol& s, std::string why) { return s.link_lost(2, std::move(why)); });
  at_every_point(0, 2,
                 [](shutdown_protocol& s, std::string why) { return s.cut(2, std::move(why)); });
  at_every_point(1, 0, [](shutdown_protocol& s, std::string why) {
    return *s.received(0, {shutdown_message::kind::lost, 2, std::move(why)});
  });
}

// Every main has returned, and all but the last count of the second round are there.
TEST_CASE("shortage: a good end can be told again") {
  using kind = shutdown_message::kind;
  std::uint64_t round = 0;
  const auto but_one = [&round](shutdown_protocol& s) {
    static_cast<void>(s.main_returned());
    static_cast<void>(s.received(1, {kind::finished, 1, {}}));
    auto asked = s.received(2, {kind::finished, 2, {}});
    for (int rounds = 1; rounds <= 2; ++rounds) {
      REQUIRE(asked);
      REQUIRE(asked->count);
      round = *asked->count;
      static_cast<void>(s.counted(round, {}));
      static_cast<void>(s.received(1, {kind::counts, 1, {}, round, {}}));
      if (rounds == 1) asked = s.received(2, {kind::counts, 2, {}, round, {}});
    }
  };
  const auto last = [&round](shutdown_protocol& s, const std::string&) {
    return *s.received(2, {kind::counts, 2, {}, round, {}});
  };
  at_every_point(0, 2, last, but_one);
}

}  // namespace poor_runs
