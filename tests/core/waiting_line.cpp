// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/waiting_line.hpp>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <core/manual_clock.hpp>
#include <optional>

namespace standing_in_line {

using namespace std::chrono_literals;
using weft::detail::waiting_line;

struct fixture {
  asio::io_context io;
  weft::testing::manual_clock time;
  weft::timer_list deadlines{time, io};
  waiting_line line;

  /// Somebody who may come, leave and come back.
  struct waiting {
    fixture& of;
    waiting_line::ticket ticket{};
    std::optional<waiting_line::place> place{};
    void come() { place.emplace(of.line, of.deadlines, of.time.now() + 60s, ticket); }
    void leave() { place.reset(); }
    [[nodiscard]] bool is_first() const { return place && place->is_first(); }
  };
};

TEST_CASE("waiting line: first come, first served, and who leaves lets the next one forward") {
  fixture f;
  CHECK(f.line.empty());
  fixture::waiting a{f}, b{f}, c{f};
  for (auto* each : {&a, &b, &c}) each->come();
  CHECK(a.is_first());
  b.leave();
  CHECK_FALSE(c.is_first());
  a.leave();
  CHECK(c.is_first());
  c.leave();
  CHECK(f.line.empty());
}

TEST_CASE("waiting line: who comes back stands before those who came later, and behind others") {
  fixture f;
  fixture::waiting a{f}, b{f}, c{f}, d{f};
  for (auto* each : {&a, &b, &c}) each->come();
  a.leave();
  CHECK(b.is_first());
  a.come();
  CHECK(a.is_first());
  CHECK_FALSE(b.is_first());
  // Several, in whatever order.
  for (auto* each : {&a, &b, &c}) each->leave();
  for (auto* each : {&d, &c, &a, &b}) each->come();
  for (auto* each : {&a, &b, &c, &d}) {
    CHECK(each->is_first());
    each->leave();
  }
  CHECK(f.line.empty());
  // Alone, and with somebody behind.
  a.come();
  CHECK(a.is_first());
  fixture::waiting e{f};
  e.come();
  a.leave();
  CHECK(e.is_first());
  e.leave();
  CHECK(f.line.empty());
}

}  // namespace standing_in_line
