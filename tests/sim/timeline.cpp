// SPDX-License-Identifier: BSL-1.0
#include <weft/sim/choices.hpp>
#include <weft/sim/timeline.hpp>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sim_timeline {

using namespace std::chrono_literals;
using weft::sim::choices;
using weft::sim::timeline;
using weft::sim::virtual_clock;

struct note final : weft::sim::moment {
  note(timeline& of, std::function<void()> what) : moment(of), then(std::move(what)) {}
  void comes() override { then(); }
  std::function<void()> then;
};

TEST_CASE("timeline: moments come in order, equal ones as they were added, and are the time") {
  timeline t;
  std::string log;
  note a(t, [&] { log += "a"; }), b(t, [&] { log += "b"; }), c(t, [&] { log += "c"; });
  const auto zero = t.now();
  t.add(c, zero + 2s);
  t.add(b, zero + 1s);
  t.add(a, zero + 1s);
  t.add(b, zero + 1s);  // again: behind a
  t.step();
  CHECK(log == "a");
  CHECK(t.now() == zero + 1s);
  t.step();
  t.step();
  CHECK(log == "abc");
  CHECK(t.now() == zero + 2s);
  CHECK(t.empty());
}

TEST_CASE("timeline: time never goes back, and what died or was removed does not come") {
  timeline t;
  int came = 0;
  {
    note gone(t, [&] { ++came; });
    t.add(gone, t.now() + 1s);
  }
  note removed(t, [&] { ++came; }), late(t, [&] { ++came; });
  t.add(removed, t.now() + 1s);
  t.add(late, t.now() + 1ms);
  t.remove(removed);
  t.pass(1h);
  const auto now = t.now();
  t.step();
  CHECK(came == 1);
  CHECK(t.now() == now);
  CHECK(t.empty());
}

TEST_CASE("virtual clock: runs at its rate, never backward, and its alarms ring by it") {
  for (const std::int32_t ppm : {-10'000, -1, 0, 1, 10'000}) {
    CAPTURE(ppm);
    timeline t;
    virtual_clock clock(t, ppm);
    asio::io_context io;
    const auto begin = clock.now();
    auto before = begin;
    for (int i = 0; i < 5000; ++i) {
      t.pass(std::chrono::nanoseconds(997));
      CHECK(clock.now() >= before);
      before = clock.now();
    }
    const auto timer = clock.make_timer(io);
    const auto when = begin + 3s;
    weft::time_point rang{};
    timer->arm(when, [&] { rang = clock.now(); });
    // bounded: nothing is added but what one alarm needs
    while (!t.empty()) {
      t.step();
      io.restart();
      io.poll();
    }
    CHECK(rang >= when);
    CHECK(rang < when + 2us);
    const std::int64_t world = (t.now() - timeline::beginning).count();
    const std::int64_t shown = (clock.now() - timeline::beginning).count();
    CHECK(std::abs((shown - world) - world / 1'000'000 * ppm) < 20'000);
  }
}

TEST_CASE("virtual clock: an alarm that is queued already is stopped by cancel, arm and death") {
  for (int how = 0; how < 3; ++how) {
    CAPTURE(how);
    timeline t;
    virtual_clock clock(t, 0);
    asio::io_context io;
    int first = 0, second = 0;
    auto timer = clock.make_timer(io);
    timer->arm(clock.now() + 1s, [&] { ++first; });
    t.step();  // it waits in the io_context now
    if (how == 0) timer->cancel();
    if (how == 1) timer->arm(clock.now() + 1s, [&] { ++second; });
    if (how == 2) timer.reset();
    io.poll();
    CHECK(first == 0);
    if (how != 1) continue;
    t.step();
    io.restart();
    io.poll();
    CHECK(second == 1);
  }
}

TEST_CASE("virtual clock: an alarm may arm, cancel and destroy its own timer") {
  timeline t;
  virtual_clock clock(t, 0);
  asio::io_context io;
  auto timer = clock.make_timer(io);
  int rang = 0;
  timer->arm(clock.now() + 1s, [&] {
    ++rang;
    timer->arm(clock.now() + 1s, [&] {
      ++rang;
      timer.reset();
    });
    CHECK(rang == 1);
  });
  for (int i = 0; i < 2; ++i) {
    t.step();
    io.restart();
    io.poll();
  }
  CHECK(rang == 2);
  CHECK(t.empty());
}

TEST_CASE("choices: a seed decides, a record repeats, and what is missing in it is zero") {
  choices a(42), b(42), other(43);
  std::vector<std::uint32_t> drawn;
  bool differs = false;
  for (std::uint32_t n = 1; n < 2000; ++n) {
    drawn.push_back(a.pick(n));
    CHECK(drawn.back() < n);
    CHECK(b.pick(n) == drawn.back());
    differs |= other.pick(n) != drawn.back();
  }
  CHECK(differs);
  CHECK(a.made() == drawn);
  choices again(drawn);
  for (std::uint32_t n = 1; n < 2000; ++n) CHECK(again.pick(n) == drawn[n - 1]);
  CHECK(again.pick(7) == 0);
  choices smaller(std::vector<std::uint32_t>{99, 3});
  CHECK(smaller.pick(5) == 4);  // as much as there is
  CHECK(smaller.pick(5) == 3);
  CHECK(smaller.made() == std::vector<std::uint32_t>{4, 3});
  CHECK_FALSE(choices(std::vector<std::uint32_t>{}).chance(100 - 1));
}

TEST_CASE("choices: the numbers are those of splitmix64, on every compiler") {
  weft::sim::splitmix random(1234567);
  CHECK(random() == 6457827717110365317u);
  CHECK(random() == 3203168211198807973u);
  CHECK(random() == 9817491932198370423u);
}

}  // namespace sim_timeline
