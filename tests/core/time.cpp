// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/pairing_heap.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>

#include <asio/post.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <core/loop.hpp>
#include <core/manual_clock.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace core_time {

using namespace std::chrono_literals;
using weft::timer_list;
using weft::testing::manual_clock;

struct entry final : weft::deadline_entry {
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

TEST_CASE("timer list: once closed it sets no alarm, also for what is added") {
  fixture f;
  auto a = f.writes("a");
  auto b = f.writes("b");
  f.list.add(a, f.time.now() + 1s);
  f.list.close();
  const int armed = f.time.armed();
  f.list.add(b, f.time.now() + 1s);
  CHECK(f.time.armed() == armed);
  f.time.advance(5s);
  CHECK(f.log.empty());
  f.list.remove(a);
  f.list.remove(b);
  CHECK(f.list.empty());
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

TEST_CASE("time: durations and times beyond the clock's reach are its last ones") {
  using namespace std::chrono;
  using weft::bounded;
  using weft::duration;
  using weft::later;
  using weft::time_point;
  CHECK(bounded(hours::max()) == duration::max());
  CHECK(bounded(hours::min()) == duration::min());
  CHECK(bounded(seconds::max()) == duration::max());
  CHECK(bounded(nanoseconds::max()) == duration::max());
  CHECK(bounded(std::chrono::duration<double>(1e30)) == duration::max());
  CHECK(bounded(hours(24 * 365 * 200)) == hours(24 * 365 * 200));
  CHECK(bounded(std::chrono::duration<float>(9.2233720e9f)) <= duration::max());
  CHECK(bounded(std::chrono::duration<double>(std::nan(""))) == duration::max());
  CHECK(bounded(std::chrono::duration<double>(0.25)) == 250ms);
  CHECK(bounded(1ms) == 1ms);
  CHECK(bounded(-1ms) == -1ms);
  const time_point t(1h);
  CHECK(later(t, 1s) == t + 1s);
  CHECK(later(t, -1s) == t - 1s);
  CHECK(later(t, duration::max()) == time_point::max());
  CHECK(later(time_point::max(), 1ns) == time_point::max());
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

/// What may happen to an alarm between its time and its turn.
enum class too_late : std::uint8_t { cancelled, replaced, destroyed };

/// The alarm's time has come, it is queued; `before` runs in front of it in the same turn.
void ring_too_late(weft::clock& time, asio::io_context& io, too_late how,
                   const std::function<void()>& expire) {
  CAPTURE(static_cast<int>(how));
  auto timer = time.make_timer(io);
  std::string log;
  const auto alive = std::make_shared<int>(0);
  timer->arm(time.now(), [&log, alive] { log += "old"; });
  asio::post(io, [&] {
    log += "handler ";
    if (how == too_late::cancelled) timer->cancel();
    if (how == too_late::replaced) timer->arm(time.now(), [&log] { log += "new"; });
    if (how == too_late::destroyed) timer.reset();
  });
  expire();
  weft::testing::settle(io);
  expire();
  weft::testing::settle(io);
  CHECK(log == (how == too_late::replaced ? "handler new" : "handler "));
  CHECK(alive.use_count() == 1);
}

TEST_CASE("clock: an alarm that is queued already is stopped by cancel, arm and destruction") {
  for (const auto how : {too_late::cancelled, too_late::replaced, too_late::destroyed}) {
    {
      asio::io_context io;
      weft::real_clock time;
      ring_too_late(time, io, how, [] {});
    }
    asio::io_context io;
    manual_clock time;
    ring_too_late(time, io, how, [&] { time.expire(0s); });
  }
}

TEST_CASE("clock: an alarm may arm, cancel and destroy its own timer, and never runs inside arm") {
  asio::io_context io;
  weft::real_clock real;
  manual_clock manual;
  for (weft::clock* time : {static_cast<weft::clock*>(&real), static_cast<weft::clock*>(&manual)}) {
    std::string log;
    auto timer = time->make_timer(io);
    timer->arm(time->now(), [&] {
      log += "a";
      timer->arm(time->now(), [&] {
        log += "b";
        timer->cancel();
        timer.reset();
      });
      log += "/";
    });
    CHECK(log.empty());
    for (int turn = 0; turn < 3; ++turn) {
      manual.expire(0s);
      weft::testing::settle(io);
    }
    CHECK(log == "a/b");
  }
}

TEST_CASE("timer list: what rings may add a later deadline without delaying the others") {
  fixture f;
  auto b = f.writes("b");
  auto c = f.writes("c");
  entry a([&] {
    f.log += "a";
    f.list.add(c, f.time.now() + 10s);
  });
  f.list.add(a, f.time.now() + 1s);
  f.list.add(b, f.time.now() + 2s);
  f.time.advance(2s);
  CHECK(f.log == "ab");
  f.time.advance(9s);
  CHECK(f.log == "abc");
}

TEST_CASE("timer list: an entry that throws takes nobody's alarm with it") {
  fixture f;
  entry a([] { throw std::runtime_error("an entry"); });
  auto b = f.writes("b");
  auto c = f.writes("c");
  f.list.add(a, f.time.now() + 1s);
  f.list.add(b, f.time.now() + 1s);
  f.list.add(c, f.time.now() + 2s);
  CHECK_THROWS_AS(f.time.advance(1s), std::runtime_error);
  CHECK_FALSE(a.listed());
  f.time.advance(1s);
  CHECK(f.log == "bc");
}

TEST_CASE("timer list: one that is gone does not ring, though its alarm is queued") {
  asio::io_context io;
  manual_clock time;
  entry a([] { FAIL("rang after the list was gone"); });
  auto list = std::make_unique<timer_list>(time, io);
  list->add(a, time.now() + 1s);
  time.expire(1s);
  list.reset();
  weft::testing::settle(io);
  CHECK_FALSE(a.listed());
}

TEST_CASE("timer list: does what a sorted list does, at random") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    fixture f;
    using expectation = std::pair<weft::time_point, int>;
    std::vector<expectation> model;  // sorted, equal ones in the order of their coming
    std::vector<int> rang;
    std::vector<int> should;
    std::vector<std::unique_ptr<entry>> all(200);

    const bool mostly_in_order = seed % 2 == 0;
    auto add = [&](int i) {
      const int ms = mostly_in_order && below(4) > 0 ? 25 : below(50);
      const auto when = f.time.now() + std::chrono::milliseconds(ms);
      f.list.add(*all[static_cast<std::size_t>(i)], when);
      model.insert(std::upper_bound(model.begin(), model.end(), expectation(when, 0),
                                    [](const auto& a, const auto& b) { return a.first < b.first; }),
                   {when, i});
    };
    auto remove = [&](int i) {
      f.list.remove(*all[static_cast<std::size_t>(i)]);
      std::erase_if(model, [i](const auto& e) { return e.second == i; });
    };
    auto toggle = [&] {
      const int i = below(static_cast<int>(all.size()));
      all[static_cast<std::size_t>(i)]->listed() ? remove(i) : add(i);
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = std::make_unique<entry>([&, i] {
        rang.push_back(static_cast<int>(i));
        // The model, one step at a time: its first is the one that rings now.
        should.push_back(model.empty() ? -1 : model.front().second);
        if (!model.empty()) model.erase(model.begin());
        for (int n = below(4); n > 0; --n) toggle();  // from inside
      });
    }
    for (int step = 0; step < 300; ++step) {
      for (int n = below(20); n > 0; --n) toggle();
      if (below(3) == 0) f.time.advance(std::chrono::milliseconds(below(8)));
      const bool late = !model.empty() && model.front().first < f.time.now();
      if (late || f.list.empty() != model.empty()) FAIL("a deadline was missed");
    }
    CHECK(rang == should);
    CHECK(rang.size() > 300);
    for (const auto& [when, i] : model) CHECK(all[static_cast<std::size_t>(i)]->listed());
    for (const auto& e : all) f.list.remove(*e);
    CHECK(f.list.empty());
  }
}

/// Counts comparisons, which is what an addition to a sorted list costs.
struct numbered : weft::detail::heap_entry<numbered> {
  int number = 0;
};
int compared = 0;
struct lower {
  bool operator()(const numbered& a, const numbered& b) const {
    ++compared;
    return a.number < b.number;
  }
};

TEST_CASE("pairing heap: no order of additions and removals is quadratic") {
  constexpr int n = 20'000;
  constexpr int enough = 40 * n;  // a few times n log n; n * n would be 10'000 times as much
  std::mt19937 random(7);
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    std::vector<numbered> all(n);
    std::vector<int> order;
    for (int i = 0; i < n; ++i) order.push_back(i);
    if (kind == 1) std::reverse(order.begin(), order.end());
    if (kind == 2) std::shuffle(order.begin(), order.end(), random);
    if (kind == 3) {  // all behind one long one, then far from it: deadlines of two lengths
      for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = (i % 2) * n + i;
    }
    for (int i = 0; i < n; ++i) {
      all[static_cast<std::size_t>(i)].number = order[static_cast<std::size_t>(i)];
    }
    for (const bool in_order : {true, false}) {
      compared = 0;
      weft::detail::pairing_heap<numbered, lower> heap;
      for (numbered& e : all) heap.push(e);
      if (in_order) {
        int before = -1;
        bool sorted = true;
        for (int i = 0; i < n && !heap.empty(); ++i) {
          numbered& first = heap.top();
          sorted = sorted && first.number > before;
          before = first.number;
          heap.remove(first);
        }
        CHECK(sorted);
      } else {
        for (std::size_t i = 0; i < all.size(); ++i) heap.remove(all[(i * 7919) % all.size()]);
      }
      CHECK(heap.empty());
      CHECK(compared < enough);
    }
  }
}

TEST_CASE("pairing heap: what comes in order costs a comparison or two, also behind a late one") {
  constexpr int n = 20'000;
  std::vector<numbered> all(n);
  numbered late;
  late.number = 2 * n;
  weft::detail::pairing_heap<numbered, lower> heap;
  heap.push(late);
  compared = 0;
  for (int i = 0; i < n; ++i) {
    all[static_cast<std::size_t>(i)].number = i;
    heap.push(all[static_cast<std::size_t>(i)]);
  }
  for (int i = 1; i < n; i += 2) heap.remove(all[static_cast<std::size_t>(i)]);
  CHECK(compared < n + 10);
  bool sorted = true;
  for (int i = 0; i < n; i += 2) {
    sorted = sorted && &heap.top() == &all[static_cast<std::size_t>(i)];
    heap.remove(heap.top());
  }
  CHECK(sorted);
  CHECK(compared < 4 * n);
  CHECK(&heap.top() == &late);
  heap.clear();
}

TEST_CASE("pairing heap: one that is cleared lets all entries go") {
  std::vector<numbered> all(1000);
  weft::detail::pairing_heap<numbered, lower> heap;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].number = static_cast<int>((i * 73) % all.size());
    heap.push(all[i]);
  }
  for (int i = 0; i < 100; ++i) heap.remove(heap.top());
  heap.clear();
  CHECK(heap.empty());
  CHECK(std::none_of(all.begin(), all.end(), [](const auto& e) { return e.linked(); }));
  heap.push(all[5]);
  CHECK(&heap.top() == &all[5]);
}

}  // namespace core_time
