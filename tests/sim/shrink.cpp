// SPDX-License-Identifier: BSL-1.0
#include <weft/sim/shrink.hpp>
#include <weft/sim/world.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sim/calls.hpp>
#include <string>

namespace sim_shrink {

using namespace std::chrono_literals;
using weft::sim::record;
using weft::sim::shrink;

TEST_CASE("shrink: what breaks something stays, all else goes") {
  const record big(1000, 7);
  const record small =
      shrink(big, [](const record& r) { return r.size() > 400 && r[17] == 7 && r[400] == 7; });
  record least(401, 0);
  least[17] = least[400] = 7;
  CHECK(small == least);
  CHECK(weft::sim::faulty_choices(small) == 2);
}

TEST_CASE("shrink: of what breaks something in any case nothing is left") {
  for (const std::size_t size : {0u, 1u, 2u, 3u, 100u}) {
    CAPTURE(size);
    CHECK(shrink(record(size, 1), [](const record&) { return true; }).empty());
  }
}

TEST_CASE("shrink: it asks no more often than it may, never about what it was given") {
  const record big(1000, 1);
  for (const std::size_t tries : {0u, 1u, 10u, 100u}) {
    CAPTURE(tries);
    std::size_t asked = 0;
    const record small = shrink(
        big,
        [&](const record& r) {
          ++asked;
          CHECK(r != big);
          return r.size() > 990 && weft::sim::faulty_choices(r) == r.size();
        },
        tries);
    CHECK(asked == tries);
    CHECK((small.size() > 990 || tries == 0));
  }
}

TEST_CASE("shrink: the smallest world with a cut has nothing but that cut" *
          doctest::test_suite("all")) {
  weft::sim::settings how;
  how.wires.jitter = 1ms;
  how.mean_between_faults = 20ms;
  how.faults_end = 1s;
  how.cuts = how.pauses = true;
  how.longest_cut = how.longest_pause = 10ms;
  const auto cuts_in = [](weft::sim::world& w) {
    weft::testing::witness sees(w);
    std::size_t cuts = 0;
    w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1s); });
    CHECK(w.run(1min));
    const std::string& story = w.story();
    for (std::size_t at = story.find(" is cut off"); at != std::string::npos;
         at = story.find(" is cut off", at + 1)) {
      ++cuts;
    }
    return cuts;
  };
  how.keeps_story = true;
  weft::sim::world w(1, how);
  CHECK(cuts_in(w) > 1);
  const record big = w.decide().made();
  const record small = shrink(big, [&](const record& r) {
    weft::sim::world again(1, how, r);
    return cuts_in(again) > 0;
  });
  weft::sim::world least(1, how, small);
  CHECK(cuts_in(least) == 1);
  CHECK(least.story().find("paused") == std::string::npos);
  CHECK(weft::sim::faulty_choices(small) <= 2);  // who, and which fault
}

}  // namespace sim_shrink
