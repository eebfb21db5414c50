// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/link/signs_of_life.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace life_signs {

using namespace std::chrono_literals;
using weft::engine::signs_of_life;
using verdict = signs_of_life::verdict;

constexpr signs_of_life::limits most{10s, 30s};

TEST_CASE("signs of life: a ping is due when nothing else was written") {
  signs_of_life s;
  CHECK(s.quiet(0));
  CHECK_FALSE(s.quiet(5));
  CHECK(s.quiet(5));
  CHECK(s.quiet(5));
  CHECK_FALSE(s.quiet(6));  // the ping itself was written
  CHECK(s.quiet(6));
}

TEST_CASE("signs of life: silence is too long at its limit, and any byte ends it") {
  signs_of_life s;
  for (int n = 0; n < 4; ++n) CHECK(s.judge({}, 2s, most) == verdict::alive);
  CHECK(s.judge({.received = 1}, 2s, most) == verdict::alive);
  for (int n = 0; n < 4; ++n) CHECK(s.judge({.received = 1}, 2s, most) == verdict::alive);
  CHECK(s.judge({.received = 1}, 2s, most) == verdict::silent);
}

TEST_CASE("signs of life: what is written to a silent peer is no sign of it") {
  signs_of_life s;
  std::uint64_t written = 0;
  for (int n = 0; n < 4; ++n) {
    CHECK(s.judge({.written = ++written, .writing = true}, 2s, most) == verdict::alive);
  }
  CHECK(s.judge({.written = ++written, .writing = true}, 2s, most) == verdict::silent);
}

TEST_CASE("signs of life: for debuggers, silence is never too long") {
  signs_of_life s;
  for (int n = 0; n < 1000; ++n) CHECK(s.judge({}, 2s, {0s, 30s}) == verdict::alive);
}

TEST_CASE("signs of life: a write without progress is stuck, though the peer talks") {
  signs_of_life s;
  std::uint64_t received = 0;
  const auto ask = [&](std::uint64_t written, bool busy = false) {
    return s.judge({++received, written, true, busy}, 10s, most);
  };
  CHECK(ask(1) == verdict::alive);  // went
  CHECK(ask(1) == verdict::alive);
  CHECK(ask(1) == verdict::alive);
  CHECK(ask(2) == verdict::alive);  // went
  CHECK(ask(2) == verdict::alive);
  CHECK(ask(2) == verdict::alive);
  CHECK(ask(2, true) == verdict::alive);  // its reading thread computes: counts from then on
  CHECK(ask(2) == verdict::alive);
  CHECK(ask(2) == verdict::alive);
  CHECK(ask(2) == verdict::stuck);
}

TEST_CASE("signs of life: a link that writes nothing is not stuck, however small the limit") {
  signs_of_life s;
  for (const auto limit : {0s, 1s, 30s}) {
    std::uint64_t received = 0;
    for (int n = 0; n < 10; ++n) {
      CHECK(s.judge({.received = ++received}, 60s, {10s, limit}) == verdict::alive);
    }
  }
}

}  // namespace life_signs
