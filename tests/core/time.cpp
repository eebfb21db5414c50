// SPDX-License-Identifier: BSL-1.0
#include <weft/core/time.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <core/loop.hpp>
#include <core/manual_clock.hpp>
#include <functional>
#include <string>
#include <vector>

namespace core_time {

using namespace std::chrono_literals;
using weft::timer_list;
using weft::testing::manual_clock;

struct entry final : weft::timed {
  explicit entry(std::function<void()> what) : action(std::move(what)) {}
  void expired() override { action(); }
  std::function<void()> action;
};

struct fixture {
  asio::io_context io;
  manual_clock time;
  timer_list list{time, io};
  std::string log;
  entry writes(std::string text) {
    return entry([this, text = std::move(text)] { log += text; });
  }
};

TEST_CASE("timer list: deadlines ring in their order, equal ones as they came") {
  fixture f;
  auto a = f.writes("a");
  auto b = f.writes("b");
  auto c = f.writes("c");
  auto d = f.writes("d");
  f.list.add(c, f.time.now() + 3s);
  f.list.add(a, f.time.now() + 1s);
  f.list.add(d, f.time.now() + 3s);
  f.list.add(b, f.time.now() + 2s);
  f.time.advance(999ms);
  CHECK(f.log.empty());
  f.time.advance(1ms);
  CHECK(f.log == "a");
  CHECK_FALSE(a.listed());
  CHECK(b.listed());
  f.time.advance(5s);
  CHECK(f.log == "abcd");
  CHECK(f.list.empty());
}

TEST_CASE("timer list: what is removed does not ring") {
  fixture f;
  auto a = f.writes("a");
  auto b = f.writes("b");
  f.list.add(a, f.time.now() + 1s);
  f.list.add(b, f.time.now() + 2s);
  f.list.remove(a);
  f.list.remove(a);  // does nothing
  CHECK_FALSE(a.listed());
  f.time.advance(3s);
  CHECK(f.log == "b");
}

TEST_CASE("timer list: an entry may remove its neighbours while it rings") {
  fixture f;
  auto b = f.writes("b");
  auto c = f.writes("c");
  entry a([&] {
    f.log += "a";
    f.list.remove(b);
  });
  f.list.add(a, f.time.now() + 1s);
  f.list.add(b, f.time.now() + 1s);
  f.list.add(c, f.time.now() + 1s);
  f.time.advance(1s);
  CHECK(f.log == "ac");
}

TEST_CASE("timer list: an entry may add itself and others while it rings") {
  fixture f;
  auto soon = f.writes("s");
  int rings = 0;
  entry again([&] { f.log += "r"; });
  again.action = [&] {
    f.log += "r";
    if (++rings < 3) f.list.add(again, f.time.now() + 1s);
    if (rings == 1) f.list.add(soon, f.time.now());  // due already
  };
  f.list.add(again, f.time.now() + 1s);
  f.time.advance(1s);
  CHECK(f.log == "rs");
  f.time.advance(10s);
  CHECK(f.log == "rsrr");
}

TEST_CASE("timer list: an earlier deadline moves the alarm forward, a later one leaves it") {
  fixture f;
  auto a = f.writes("a");
  auto b = f.writes("b");
  auto c = f.writes("c");
  f.list.add(a, f.time.now() + 5s);
  CHECK(f.time.armed() == 1);
  f.list.add(b, f.time.now() + 9s);
  CHECK(f.time.armed() == 1);
  f.list.add(c, f.time.now() + 2s);
  CHECK(f.time.armed() == 2);
  f.time.advance(2s);
  CHECK(f.log == "c");
  f.time.advance(3s);
  CHECK(f.log == "ca");
  f.time.advance(4s);
  CHECK(f.log == "cab");
}

TEST_CASE("timer list: an alarm for a removed entry rings for nobody, and later ones still ring") {
  fixture f;
  auto a = f.writes("a");
  auto b = f.writes("b");
  f.list.add(a, f.time.now() + 1s);
  f.list.add(b, f.time.now() + 4s);
  f.list.remove(a);
  f.time.advance(1s);
  CHECK(f.log.empty());
  f.time.advance(3s);
  CHECK(f.log == "b");
}

TEST_CASE("timer list: after stop it rings again only for what is added") {
  fixture f;
  auto a = f.writes("a");
  f.list.add(a, f.time.now() + 1s);
  f.list.stop();
  f.time.advance(2s);
  CHECK(f.log.empty());
  auto b = f.writes("b");
  f.list.add(b, f.time.now() + 1s);
  f.time.advance(1s);
  CHECK(f.log == "ab");
}

TEST_CASE("timer list: entries outlive it") {
  asio::io_context io;
  manual_clock time;
  entry a([] { FAIL("rang after the list was gone"); });
  {
    timer_list list(time, io);
    list.add(a, time.now() + 1s);
  }
  CHECK_FALSE(a.listed());
  time.advance(2s);
}

TEST_CASE("timer list: many deadlines in any order") {
  fixture f;
  std::vector<int> rang;
  std::vector<std::unique_ptr<entry>> entries;
  for (int i = 0; i < 200; ++i) {
    const int when = (i * 73) % 200;
    entries.push_back(std::make_unique<entry>([&rang, when] { rang.push_back(when); }));
    f.list.add(*entries.back(), f.time.now() + std::chrono::milliseconds(when));
  }
  for (int i = 0; i < 200; i += 3) f.list.remove(*entries[static_cast<std::size_t>(i)]);
  f.time.advance(1s);
  CHECK(rang.size() == 133);
  CHECK(std::is_sorted(rang.begin(), rang.end()));
}

TEST_CASE("real clock: rings, and not before its time; a cancelled alarm does not") {
  asio::io_context io;
  weft::real_clock time;
  timer_list list(time, io);
  const auto begun = time.now();
  weft::time_point rang{};
  entry a([&] { rang = time.now(); });
  list.add(a, begun + 20ms);
  const auto cancelled = time.make_timer(io);
  cancelled->arm(begun + 1ms, [] { FAIL("a cancelled alarm rang"); });
  cancelled->cancel();
  weft::testing::finish(io);
  CHECK(rang >= begun + 20ms);
}

TEST_CASE("real clock: arming again replaces the alarm, destruction cancels it") {
  asio::io_context io;
  weft::real_clock time;
  auto timer = time.make_timer(io);
  std::string log;
  timer->arm(time.now() + 1h, [&] { log += "old"; });
  timer->arm(time.now() + 1ms, [&] { log += "new"; });
  weft::testing::finish(io);
  CHECK(log == "new");
  timer->arm(time.now() + 1ms, [&] { log += "dead"; });
  timer.reset();
  weft::testing::finish(io);
  CHECK(log == "new");
}

}  // namespace core_time
