// SPDX-License-Identifier: BSL-1.0
// A handshake while memory lacks: whoever steps it hears of that.
#include "shortage.hpp"
#include <weft/engine/link/handshake.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace poor_handshakes {

using namespace weft;
using weft::engine::handshake;
using weft::testing::shortage;

membership two(std::uint32_t rank) {
  membership all;
  all.rank = rank;
  all.token = {1, 2};
  for (std::uint32_t r = 0; r < 2; ++r) {
    all.members.push_back({"w" + std::to_string(r), "", {5, r}, {}});
  }
  return all;
}

/// From the hello to the last word; the n-th allocation of one side's step fails. Whether one did.
bool talk(long nth, int step_that_lacks) {
  const membership one = two(0), other = two(1);
  random_source draws = [] { return std::uint64_t{7}; };
  handshake connects(one, 1, draws);
  handshake accepts(other, draws);
  std::optional<frame> word;
  bool struck = false;
  const auto in_want = [&](int step, auto&& what) {
    if (step != step_that_lacks) return what();
    try {
      const shortage few(nth, 0);
      what();
    } catch (const std::bad_alloc&) {
      struck = true;
    }
    struck = struck || shortage::struck();
  };
  in_want(0, [&] { word = connects.hello(); });
  for (int step = 1; step < 6 && word && !struck; ++step) {
    frame heard = std::move(*std::exchange(word, std::nullopt));
    handshake& hears = step % 2 == 1 ? accepts : connects;
    in_want(step, [&] { word = hears.arrived(std::move(heard)); });
    if (!word && hears.now() == handshake::state::proven) word = hears.welcome();
  }
  if (!struck) {
    CHECK(connects.now() == handshake::state::accepted);
    CHECK(accepts.now() == handshake::state::accepted);
  }
  return struck;
}

TEST_CASE("want in a handshake: every allocation of every step may fail, and the process lives") {
  int failed = 0;
  for (int step = 0; step < 6; ++step) {
    CAPTURE(step);
    for (long n = 1; talk(n, step); ++n, ++failed) REQUIRE(n < 500);
  }
  CHECK(failed > 50);
}

}  // namespace poor_handshakes
