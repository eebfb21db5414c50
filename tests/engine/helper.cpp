// SPDX-License-Identifier: BSL-1.0
// When links are written that were only queued to, and when the helper reads: an alarm, links and a
// worker of the test's own.
#include <weft/engine/helper/helper.hpp>
#include <weft/engine/helper/impl/helper.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <rpc/bare_worker.hpp>

namespace {

using weft::intrusive_ptr;
using weft::engine::helper;
using weft::testing::bare_worker;

struct bell final : weft::engine::tick_alarm {
  bool set = false;
  bool soon = false;
  std::chrono::microseconds last{};
  int armed = 0;
  void arm(std::chrono::microseconds after) noexcept override {
    CHECK_FALSE(set);
    set = true;
    ++armed;
    soon = after == helper::interval || after == helper::writing_interval;
    last = after;
    CHECK((soon || (after >= helper::long_interval && after <= helper::longest_interval)));
  }
};

/// Has `frames` to write until they are written.
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
  void flush() noexcept override { write_now(); }
  void write_now() noexcept override {
    if (frames > 0) ++writes;
    frames = 0;
  }
  void flush_late() noexcept override { write_now(); }
  std::size_t waiting() const override { return frames; }
  void mark_down(weft::error) noexcept override {}
};

struct scene final : weft::engine::helped {
  bare_worker me;
  bell alarm;
  asio::io_context loop, front;
  int rounds = 0;  // of which services were told
  int reads = 0;
  std::uint64_t left = 0;
  bool busy = false;  // the worker's thread reads
  weft::arrivals arrivals{front, weft::arrival_ends::of::no_sockets, [this] { it.arrived(); }};
  helper it;
  intrusive_ptr<counted_link> a = weft::make_intrusive<counted_link>(me);
  intrusive_ptr<counted_link> b = weft::make_intrusive<counted_link>(me);

  explicit scene(bool reads_links = false)
      : it(*this, loop, &alarm, reads_links ? &arrivals : nullptr) {
    it.start();
  }
  void round_ends() noexcept override { ++rounds; }
  bool read_links() noexcept override {
    ++reads;
    return !busy;
  }
  std::uint64_t left_to_write() const noexcept override { return left; }

  void send(counted_link& l) {
    ++l.frames;
    it.add(l);
  }
  /// What is ready on the worker's thread runs: its round ends.
  void turn() {
    loop.restart();
    loop.poll();
  }
  void tick() {
    REQUIRE(alarm.set);
    alarm.set = false;
    it.ticked();
  }
  void tick_until_it_reads() {
    for (int ticks = 0; reads == 0; ++ticks) {  // bounded: by REQUIRE
      REQUIRE(ticks < 4);
      tick();
    }
  }
  /// Something has come on a link, and the helper hears of it if it waits for that.
  void come() {
    arrivals.ends()->bell()->wake();
    front.restart();
    front.poll();
  }
};

TEST_CASE("helper: a round's end writes what the round sent, once") {
  scene s;
  s.send(*s.a);
  s.send(*s.a);
  s.send(*s.b);
  CHECK(s.a->writes == 0);
  s.turn();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 1);
  s.turn();
  CHECK(s.a->writes == 1);
  s.send(*s.a);
  s.turn();
  CHECK(s.a->writes == 2);
}

TEST_CASE("helper: a batch ends its round, and writes before if it is told to") {
  scene s;
  {
    helper::batch batch(s.it);
    s.send(*s.a);
    batch.flush();
    CHECK(s.a->writes == 1);
    s.send(*s.a);
    {
      const helper::batch inner(s.it);
      s.send(*s.b);
    }
    CHECK(s.b->writes == 0);
  }
  CHECK(s.a->writes == 2);
  CHECK(s.b->writes == 1);
  CHECK(s.loop.poll() == 0);  // nothing was posted for it
}

TEST_CASE(
    "helper: a round that lasts is written at the second tick, and so is what it sends then") {
  scene s;
  for (int n = 1; n <= 3; ++n) {
    s.send(*s.a);
    s.tick();
    CHECK(s.a->writes == n - 1);  // it may have begun just now
    s.tick();
    CHECK(s.a->writes == n);
    CHECK_FALSE(s.alarm.set);  // nothing moves
  }
}

TEST_CASE("helper: a round that ends between two ticks leaves the next one its time") {
  scene s;
  s.send(*s.a);
  s.tick();
  s.turn();
  s.send(*s.a);
  s.tick();
  CHECK(s.a->writes == 1);
  s.tick();
  CHECK(s.a->writes == 2);
}

TEST_CASE("helper: while rounds end by themselves it ticks on, and stops when there are none") {
  scene s;
  for (int ticks = 0; ticks < 5; ++ticks) {
    for (int n = 0; n < 10; ++n) {
      s.send(*s.a);
      s.turn();
    }
    s.tick();
    CHECK(s.alarm.set);
    CHECK_FALSE(s.alarm.soon);
  }
  CHECK(s.a->writes == 50);
  CHECK(s.alarm.armed == 6);
  s.tick();
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("helper: it looks more seldom the longer the worker is well, until it was slow once") {
  scene s;
  const auto live = [&s](int ticks) {
    for (int n = 0; n < ticks; ++n) {
      s.send(*s.a);
      s.turn();
      s.tick();
    }
  };
  live(1);
  CHECK(s.alarm.last == helper::long_interval);
  live(20);
  CHECK(s.alarm.last > helper::long_interval);
  live(100);
  CHECK(s.alarm.last == helper::longest_interval);
  s.send(*s.a);
  s.tick();
  s.tick();  // the round has lasted
  CHECK(s.a->frames == 0);
  s.turn();
  live(1);
  CHECK(s.alarm.last == helper::long_interval);
}

TEST_CASE("helper: what is put off goes with what others write, or at the next tick, once") {
  scene s;
  ++s.a->frames;
  CHECK(s.it.put_off(*s.a));
  CHECK(s.it.put_off(*s.a));
  ++s.b->frames;
  CHECK(s.it.put_off(*s.b));
  CHECK(s.alarm.armed == 1);
  s.send(*s.a);
  s.turn();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 0);
  s.tick();
  CHECK(s.a->writes == 1);
  CHECK(s.b->writes == 1);
}

TEST_CASE("helper: services are told when the round ends, or when it lasts") {
  scene s;
  s.it.hold();
  s.it.hold();
  CHECK(s.rounds == 0);
  s.turn();
  CHECK(s.rounds == 1);
  s.tick();
  s.it.hold();
  s.tick();
  CHECK(s.rounds == 1);  // it may have begun just now
  s.tick();
  CHECK(s.rounds == 2);
  s.turn();
  CHECK(s.rounds == 2);
}

TEST_CASE("helper: where no alarm rings, nothing is put off") {
  scene s;
  helper plain(s, s.loop, nullptr, nullptr);
  ++s.a->frames;
  CHECK_FALSE(plain.put_off(*s.a));
  plain.add(*s.a);
  s.turn();
  CHECK(s.a->writes == 1);
}

TEST_CASE("helper: it reads for a worker that answers no probe, until that is back") {
  scene s(true);
  s.send(*s.a);
  s.tick();
  s.tick_until_it_reads();
  CHECK(s.a->writes == 1);
  CHECK_FALSE(s.alarm.set);  // it sleeps until something comes
  s.come();
  CHECK(s.reads == 2);
  s.come();
  CHECK(s.reads == 3);
  s.turn();  // the probe is answered
  s.come();
  CHECK(s.reads == 3);
  CHECK(s.alarm.set);
}

TEST_CASE("helper: it sleeps when the worker answers and nothing moves, and wakes when it does") {
  scene s(true);
  s.send(*s.a);
  s.turn();
  for (int ticks = 0; s.alarm.set; ++ticks) {  // bounded: by REQUIRE
    REQUIRE(ticks < 4);
    s.tick();
    s.turn();
  }
  CHECK(s.reads == 0);
  s.come();
  CHECK(s.alarm.set);
  s.tick();  // the worker has not answered since something came
  CHECK(s.reads == 1);
}

TEST_CASE("helper: while something is left to write, it ticks") {
  scene s(true);
  s.send(*s.a);
  s.left = 1000;
  s.tick_until_it_reads();
  s.left = 500;
  s.tick();
  CHECK(s.reads == 2);
  CHECK(s.alarm.last == helper::writing_interval);
  s.tick();  // the peer has taken nothing
  CHECK(s.alarm.last == helper::longest_interval);
  s.left = 0;
  s.tick();
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("helper: while something is left to write, it looks on though the worker is well") {
  scene s(true);
  s.left = 1000;
  s.it.left_over();
  for (int ticks = 0; ticks < 20; ++ticks) {
    s.tick();
    s.turn();
  }
  CHECK(s.reads == 0);
  s.tick_until_it_reads();  // and it computes from here on
  s.left = 0;
  s.tick();
  CHECK_FALSE(s.alarm.set);
}

TEST_CASE("helper: what the worker's thread keeps to itself is asked for at ticks, not at once") {
  scene s(true);
  s.send(*s.a);
  s.busy = true;
  s.tick_until_it_reads();
  s.come();
  CHECK(s.reads == 1);
  s.busy = false;
  s.tick();
  CHECK(s.reads == 2);
  CHECK_FALSE(s.alarm.set);
  s.come();
  CHECK(s.reads == 3);
}

TEST_CASE("helper: what could not be written while it reads makes it tick again") {
  scene s(true);
  s.send(*s.a);
  s.tick_until_it_reads();
  REQUIRE_FALSE(s.alarm.set);
  s.left = 1000;
  s.it.left_over();
  s.tick();
  CHECK(s.reads == 2);
  CHECK(s.alarm.set);
}

TEST_CASE("helper: a long list of short handlers is one long one, though it writes in between") {
  scene s(true);
  helper::batch inbox(s.it);
  for (int ticks = 0; s.reads == 0; ++ticks) {  // bounded: by REQUIRE
    REQUIRE(ticks < 5);
    s.send(*s.a);
    inbox.flush();
    s.tick();
  }
  CHECK(s.a->frames == 0);
}

}  // namespace
