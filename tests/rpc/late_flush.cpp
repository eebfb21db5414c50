// SPDX-License-Identifier: BSL-1.0
// When links are written that nobody flushed yet: an alarm and links of the test's own.
#include <weft/rpc/connection.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <doctest/doctest.h>

#include <core/manual_clock.hpp>
#include <functional>
#include <rpc/bare_worker.hpp>
#include <utility>

namespace {

using weft::ref;
using weft::detail::late_flush;
using weft::testing::bare_worker;

struct bell final : weft::detail::flush_alarm {
  bool set = false;
  int armed = 0;
  void arm() noexcept override {
    CHECK_FALSE(set);
    set = true;
    ++armed;
  }
  void disarm() noexcept override {
    CHECK(set);
    set = false;
  }
};

/// Has `frames` to write until it is flushed.
class counted_link final : public weft::link {
 public:
  counted_link(weft::worker& me) : link(me, 0, me.deadlines(), {}) {}
  std::size_t frames = 0;
  int writes = 0;

  state now() const override { return state::up; }
  std::string transport() const override { return {}; }
  weft::error reason() const override { return {}; }
  weft::expected<std::uint64_t> queue(weft::message&&,
                                      const weft::frame_header&) noexcept override {
    return 0;
  }
  bool append(weft::frame&&) override { return true; }
  void flush() noexcept override {
    if (frames > 0) ++writes;
    frames = 0;
  }
  void flush_early() noexcept override { flush(); }
  void flush_with_turn() noexcept override { flush(); }
  void flush_late() noexcept override { flush(); }
  std::size_t waiting() const override {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return frames;
  }
  mutable std::function<void()> meanwhile;  // on another thread, as it were
  bool reserve() noexcept override { return true; }
  void unreserve() noexcept override {}
  asio::awaitable<weft::expected<void>> room(weft::time_point) override {
    co_return weft::expected<void>();
  }
  bool crowded() const noexcept override { return false; }
  void forget(weft::invocation&) noexcept override {}
  void lose(weft::error) noexcept override {}
};

struct scene {
  bare_worker me;
  bell alarm;
  late_flush late{&alarm};
  ref<counted_link> a = weft::make_ref<counted_link>(me);
  ref<counted_link> b = weft::make_ref<counted_link>(me);
  void ring() {
    REQUIRE(alarm.set);
    alarm.set = false;
    late.ring();
  }
};

TEST_CASE("late flush: what was put off outlasts the turn, and goes with what others write") {
  scene s;
  for (int n = 0; n < 3; ++n) {  // of three replies that nobody waits for
    ++s.a->frames;
    CHECK(s.late.put_off(s.a));
  }
  CHECK(s.alarm.armed == 1);
  s.late.settle();
  CHECK(s.a->writes == 0);
  CHECK(s.alarm.set);
  ++s.a->frames;  // one that somebody waits for
  s.a->flush();
  CHECK(s.a->writes == 1);
  s.late.settle();
  CHECK_FALSE(s.alarm.set);  // nothing is left to be done
  CHECK(s.a->writes == 1);
}

TEST_CASE("late flush: without company the alarm has it written, once") {
  scene s;
  s.a->frames = s.b->frames = 2;
  CHECK(s.late.put_off(s.a));
  CHECK(s.late.put_off(s.b));
  s.b->flush();
  s.late.settle();
  CHECK(s.alarm.set);  // for the other
  s.ring();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 1);
  s.late.settle();
  CHECK(s.alarm.armed == 1);
  s.a->frames = 1;
  CHECK(s.late.put_off(s.a));
  CHECK(s.alarm.armed == 2);
  s.ring();
  CHECK(s.a->writes == 2);
}

TEST_CASE(
    "late flush: an alarm that rings while a turn's end looks is set again for what is left") {
  scene s;
  s.a->frames = 1;
  CHECK(s.late.put_off(s.a));
  s.a->meanwhile = [&s] { s.ring(); };
  s.late.settle();
  CHECK(s.a->writes == 0);
  CHECK(s.alarm.set);
  s.ring();
  CHECK(s.a->writes == 1);
}

TEST_CASE("late flush: a turn's end writes what the turn sent, also beside what was put off") {
  scene s;
  s.a->frames = s.b->frames = 1;
  CHECK(s.late.put_off(s.b));
  s.late.add(s.a);
  s.late.watch();
  CHECK(s.alarm.armed == 1);
  s.late.settle();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 0);
  CHECK(s.alarm.set);
  s.late.add(s.b);
  s.late.settle();
  CHECK(s.b->writes == 1);
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("late flush: where no alarm rings, nothing is put off") {
  scene s;
  late_flush plain(nullptr);
  s.a->frames = 1;
  CHECK_FALSE(plain.put_off(s.a));
  plain.watch();
  plain.add(s.a);
  plain.settle();
  CHECK(s.a->writes == 1);
}

}  // namespace
