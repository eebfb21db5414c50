// SPDX-License-Identifier: BSL-1.0
// When links are written that nobody flushed yet: an alarm and links of the test's own.
#include <weft/engine/cork/cork.hpp>
#include <weft/engine/cork/late_flush.hpp>
#include <weft/engine/cork/timer_alarm.hpp>
#include <weft/engine/link/transport_set.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/manual_clock.hpp>
#include <cstdlib>
#include <optional>
#include <rpc/bare_worker.hpp>
#include <thread>

#include <sched.h>

namespace {

using weft::intrusive_ptr;
using weft::engine::late_flush;
using weft::testing::bare_worker;

using std::chrono::microseconds;

struct bell final : weft::engine::flush_alarm {
  bool set = false;
  int armed = 0;
  microseconds after{0};
  void arm(microseconds limit) noexcept override {
    CHECK_FALSE(set);
    set = true;
    ++armed;
    after = limit;
  }
  bool gives_way = false;
  void give_way(bool on) noexcept override { gives_way = on; }
};

/// Has `frames` to write until it is flushed.
class counted_link final : public weft::link {
 public:
  explicit counted_link(weft::worker& me) : link(me, 0) {}
  std::size_t frames = 0;
  int writes = 0;

  state current_state() const override { return state::up; }
  std::string transport() const override { return {}; }
  weft::error reason() const override { return {}; }
  sending send_now(weft::outgoing_call&, const weft::request_body&,
                   weft::error&) noexcept override {
    return sending::later;
  }
  asio::awaitable<weft::call_result> send_later(weft::outgoing_call&,
                                                const weft::request_body&) override {
    co_return weft::call_result{};
  }
  void post(weft::outgoing_call&, const weft::request_body&) override {}
  void require_can_send() override {}
  asio::awaitable<void> wait_writable(std::optional<weft::duration>) override { co_return; }
  weft::reply_line& replies() noexcept override { std::abort(); }
  weft::error describe(const weft::error& e, const weft::outgoing_call&) const noexcept override {
    return e;
  }
  weft::error caught(const weft::outgoing_call&, weft::call_progress) const noexcept override {
    return {};
  }
  bool append(weft::frame&&) override { return true; }
  void flush() noexcept override {
    if (frames > 0) ++writes;
    frames = 0;
  }
  void flush_late() noexcept override { flush(); }
  std::size_t waiting() const override { return frames; }
  void mark_down(weft::error) noexcept override {}
};

struct scene {
  bare_worker me;
  bell alarm;
  weft::testing::manual_clock clock;
  late_flush late{&alarm, clock};
  intrusive_ptr<counted_link> a = weft::make_intrusive<counted_link>(me);
  intrusive_ptr<counted_link> b = weft::make_intrusive<counted_link>(me);
  bool ring() {
    REQUIRE(alarm.set);
    alarm.set = false;
    return late.ring();
  }
};

TEST_CASE("late flush: what was put off outlasts the turn, and goes with what others write") {
  scene s;
  for (int n = 0; n < 3; ++n) {  // of three replies that nobody waits for
    ++s.a->frames;
    CHECK(s.late.put_off(*s.a));
  }
  CHECK(s.alarm.armed == 1);
  s.late.settle();
  CHECK(s.a->writes == 0);
  ++s.a->frames;  // one that somebody waits for
  s.a->flush();
  CHECK(s.a->writes == 1);
  s.ring();
  CHECK(s.a->writes == 1);
}

TEST_CASE("late flush: without company the alarm has it written, once") {
  scene s;
  s.a->frames = s.b->frames = 2;
  CHECK(s.late.put_off(*s.a));
  CHECK(s.late.put_off(*s.b));
  s.b->flush();
  s.ring();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 1);
  CHECK_FALSE(s.alarm.set);  // no turn ended since
  s.a->frames = 1;
  CHECK(s.late.put_off(*s.a));
  CHECK(s.alarm.armed == 2);
  s.ring();
  CHECK(s.a->writes == 2);
}

TEST_CASE("late flush: a turn's end writes what the turn sent, also beside what was put off") {
  scene s;
  s.a->frames = s.b->frames = 1;
  CHECK(s.late.put_off(*s.b));
  s.late.add(s.a);
  s.late.watch();
  CHECK(s.alarm.armed == 1);
  s.late.settle();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 0);
  s.late.add(s.b);
  s.late.settle();
  CHECK(s.b->writes == 1);
}

TEST_CASE("late flush: batches within a turn leave the writing to its end") {
  scene s;
  s.late.begin_turn();
  s.a->frames = 1;
  s.late.add(s.a);
  s.late.settle();
  CHECK(s.a->writes == 0);
  CHECK(s.alarm.set);  // for the turn may go on
  s.late.end_turn();
  CHECK(s.a->writes == 1);
}

TEST_CASE("late flush: a turn that goes on is written by the alarm, each time as soon") {
  scene s;
  for (int n = 1; n <= 3; ++n) {
    s.a->frames = 1;
    s.late.add(s.a);
    s.late.watch();
    s.late.watch();
    CHECK(s.alarm.armed == n);
    CHECK(s.alarm.after == microseconds(50));
    s.ring();
    CHECK(s.a->writes == n);
    CHECK_FALSE(s.alarm.set);
  }
}

TEST_CASE("late flush: while turns end by themselves the alarm rings on, more seldom, then stops") {
  scene s;
  const auto short_turn = [&] {
    s.a->frames = 1;
    s.late.add(s.a);
    s.late.watch();
    s.late.settle();
  };
  for (const int limit : {50, 100, 200, 400, 800, 1600, 1600}) {
    for (int n = 0; n < 10; ++n) short_turn();
    CHECK(s.alarm.after == microseconds(limit));
    CHECK(s.alarm.gives_way == (limit == 1600));
    s.ring();
    CHECK(s.alarm.set);
  }
  CHECK(s.alarm.armed == 8);  // of seventy turns
  CHECK(s.a->writes == 70);
  s.ring();
  CHECK_FALSE(s.alarm.set);  // no turn ended since
  CHECK_FALSE(s.alarm.gives_way);
  short_turn();
  CHECK(s.alarm.after == microseconds(50));
  s.a->frames = 1;  // a turn that goes on behind short ones
  s.late.add(s.a);
  s.late.watch();
  s.ring();
  CHECK(s.a->writes == 71);  // it has begun just now
  s.ring();
  CHECK(s.a->writes == 72);
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("late flush: behind short turns, the first ring writes what waits for long") {
  scene s;
  for (int n = 0; n < 10; ++n) {
    s.a->frames = 1;
    s.late.add(s.a);
    s.late.watch();
    s.late.settle();
    s.clock.advance(microseconds(1000));
  }
  s.a->frames = 1;
  s.late.add(s.a);
  s.clock.advance(microseconds(40));
  s.ring();
  CHECK(s.a->writes == 10);  // a turn's end writes it, as a rule
  s.clock.advance(microseconds(40));
  s.b->frames = 1;
  s.late.add(s.b);  // the first of the turn counts
  s.late.settle();
  CHECK(s.b->writes == 1);
  s.a->frames = 1;
  s.late.add(s.a);
  s.clock.advance(microseconds(40));
  s.late.add(s.b);
  s.clock.advance(microseconds(10));
  s.ring();
  CHECK(s.a->writes == 12);
  CHECK(s.alarm.set);
}

/// As the system knows it: the C library remembers only what was set through it.
int policy_of_this_thread() { return sched_getscheduler(0); }

TEST_CASE("late flush: a guard's thread gives way and takes it back, a links' thread never does") {
  using weft::engine::timer_alarm;
  std::thread([] {
    asio::io_context io;
    timer_alarm guard(io, timer_alarm::thread_is::a_guard, [] {});
    timer_alarm links(io, timer_alarm::thread_is::for_links, [] {});
    const int before = policy_of_this_thread();
    links.give_way(true);
    CHECK(policy_of_this_thread() == before);
    guard.give_way(true);
    CHECK(policy_of_this_thread() == (before == SCHED_OTHER ? SCHED_BATCH : before));
    links.give_way(false);
    CHECK(policy_of_this_thread() == (before == SCHED_OTHER ? SCHED_BATCH : before));
    guard.give_way(false);
    CHECK(policy_of_this_thread() == before);
    if (before != SCHED_OTHER) return;  // which cannot be had back
    // The program's choice stays, also one that is made meanwhile.
    const auto choose = [](int policy) {
      const sched_param settings{};
      CHECK(sched_setscheduler(0, policy, &settings) == 0);
    };
    const auto stays = [&guard](int chosen) {
      for (const bool busy : {false, true, true, false}) {
        guard.give_way(busy);
        CHECK(policy_of_this_thread() == chosen);
      }
    };
    choose(SCHED_BATCH);
    stays(SCHED_BATCH);
    choose(SCHED_OTHER);
    guard.give_way(true);
    CHECK(policy_of_this_thread() == SCHED_BATCH);
    choose(SCHED_IDLE);  // from there is no way back without privileges
    stays(SCHED_IDLE);
  }).join();
}

TEST_CASE("late flush: what services hold back is asked for if the turn goes on") {
  scene s;
  s.late.watch();
  CHECK_FALSE(s.alarm.set);
  s.late.hold(true);
  s.late.watch();
  CHECK(s.ring());
  CHECK_FALSE(s.alarm.set);
  s.late.watch();
  CHECK_FALSE(s.alarm.set);  // once
  s.late.hold(true);
  s.late.watch();
  s.late.hold(false);
  s.late.settle();
  CHECK_FALSE(s.ring());  // another turn
  CHECK_FALSE(s.ring());
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("late flush: where no alarm rings, nothing is put off") {
  scene s;
  late_flush plain(nullptr, s.clock);
  s.a->frames = 1;
  CHECK_FALSE(plain.put_off(*s.a));
  plain.watch();
  plain.add(s.a);
  plain.settle();
  CHECK(s.a->writes == 1);
}

}  // namespace
