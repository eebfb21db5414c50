// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/link/pending_calls.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <core/manual_clock.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace reply_slot {

using namespace std::chrono_literals;
using weft::call_result;
using weft::errc;
using weft::engine::pending_calls;

struct fixture {
  asio::io_context io;
  weft::testing::manual_clock time;
  weft::timer_list deadlines{time, io};
  std::vector<std::uint64_t> given_up;
  weft::call_progress got = weft::call_progress::maybe_executed;
  pending_calls slots{io, deadlines, [this](std::uint64_t call, std::uint64_t) {
                        given_up.push_back(call);
                        return got;
                      }};
  std::vector<std::string> log;

  std::uint64_t add(std::string name, weft::duration limit = 60s) {
    return slots.add(
        asio::bind_executor(
            io, [this, name](call_result r) { log.push_back(name + ": " + r.failure.message()); }),
        time.now() + limit);
  }
  static call_result failed(const char* text) {
    call_result r;
    r.failure = weft::error(errc::peer_died, text);
    return r;
  }
  void settle() {
    io.restart();
    io.poll();
  }
};

TEST_CASE("slots: a result goes to its caller, once") {
  fixture f;
  const auto a = f.add("a");
  const auto b = f.add("b");
  CHECK(a != b);
  CHECK(f.slots.waiting() == 2);
  CHECK(f.slots.complete(b, fixture::failed("for b")));
  CHECK_FALSE(f.slots.complete(b, fixture::failed("again")));
  CHECK(f.slots.waits(a));
  CHECK_FALSE(f.slots.waits(b));
  f.settle();
  CHECK(f.log == std::vector<std::string>{"b: peer died: for b"});
  CHECK(f.slots.waiting() == 1);
}

TEST_CASE("slots: an id is never used again, though its slot is") {
  fixture f;
  std::set<std::uint64_t> ids;
  std::set<std::uint32_t> indices;
  for (int i = 0; i < 1000; ++i) {
    const auto id = f.add("x");
    CHECK(ids.insert(id).second);
    indices.insert(static_cast<std::uint32_t>(id));
    CHECK(f.slots.complete(id, fixture::failed("")));
  }
  CHECK(indices.size() == 1);
}

TEST_CASE("slots: no damaged id finds another live slot") {
  fixture f;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(f.add(std::to_string(i)));
  for (int i = 0; i < 300; i += 2) f.slots.complete(ids[static_cast<std::size_t>(i)], {});
  for (int i = 0; i < 100; ++i) ids.push_back(f.add("again"));
  std::erase_if(ids, [&](std::uint64_t id) { return !f.slots.waits(id); });
  CHECK(ids.size() == 250);
  for (const std::uint64_t id : ids) {
    for (int bit = 0; bit < 64; ++bit) CHECK_FALSE(f.slots.waits(id ^ (std::uint64_t{1} << bit)));
    for (const std::uint64_t other : ids) {
      if (other == id) continue;
      // the index of one with the generation of the other
      const std::uint64_t mixed = (id & 0xffff'ffff'0000'0000) | (other & 0xffff'ffff);
      if (mixed != id && mixed != other) CHECK_FALSE(f.slots.waits(mixed));
    }
  }
}

TEST_CASE("slots: at its deadline a call ends and the peer is told") {
  fixture f;
  const auto late = f.add("late", 2s);
  const auto soon = f.add("soon", 1s);
  f.time.advance(1s);
  f.settle();
  CHECK(f.log == std::vector<std::string>{"soon: timed out: no reply by the deadline"});
  CHECK(f.given_up == std::vector<std::uint64_t>{soon});
  CHECK_FALSE(f.slots.complete(soon, fixture::failed("late reply")));
  CHECK(f.slots.complete(late, fixture::failed("in time")));
  f.time.advance(5s);
  f.settle();
  CHECK(f.log.size() == 2);
  CHECK(f.given_up.size() == 1);
}

TEST_CASE("slots: a cancelled call ends and the peer is told; cancelling later does nothing") {
  fixture f;
  asio::cancellation_signal stop;
  std::string ending;
  const auto id = f.slots.add(
      asio::bind_cancellation_slot(
          stop.slot(),
          asio::bind_executor(f.io, [&](call_result r) { ending = r.failure.message(); })),
      f.time.now() + 60s);
  stop.emit(asio::cancellation_type::terminal);
  CHECK(ending.empty());  // not within emit
  f.settle();
  CHECK(ending == "cancelled: the caller gave up");
  CHECK(f.given_up == std::vector<std::uint64_t>{id});
  const auto next = f.add("next");
  stop.emit(asio::cancellation_type::terminal);
  CHECK(f.slots.waits(next));
  CHECK(f.given_up.size() == 1);
}

TEST_CASE("slots: fail_all ends every call, and what they start meanwhile is left alone") {
  fixture f;
  std::uint64_t started = 0;
  for (int i = 0; i < 50; ++i) {
    f.slots.add(asio::bind_executor(f.io,
                                    [&](call_result) {
                                      if (started == 0) started = f.add("new");
                                    }),
                f.time.now() + 60s);
  }
  f.slots.fail_all(weft::error(errc::peer_died, "gone"));
  CHECK(f.slots.waiting() == 0);
  f.settle();
  CHECK(started != 0);
  CHECK(f.slots.waits(started));
  CHECK(f.deadlines.empty() == false);
}

TEST_CASE("slots: ids that nobody was given find nothing") {
  fixture f;
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    CHECK_FALSE(f.slots.waits(id));
    CHECK_FALSE(f.slots.complete(id, {}));
  }
}

TEST_CASE("slots: destroyed with calls waiting, they drop their callers") {
  const auto alive = std::make_shared<int>(0);
  {
    fixture f;
    f.slots.add(asio::bind_executor(f.io, [alive](call_result) {}), f.time.now() + 1s);
    struct large {
      std::shared_ptr<int> held;
      char room[500] = {};
      void operator()(call_result) const {}
    };
    f.slots.add(asio::bind_executor(f.io, large{alive}), f.time.now() + 1s);
    CHECK(alive.use_count() == 3);
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("slots: a call that gives up says how far it got") {
  fixture f;
  for (const auto ran : {weft::call_progress::not_sent, weft::call_progress::maybe_executed}) {
    f.got = ran;
    weft::error seen;
    f.slots.add(asio::bind_executor(f.io, [&seen](call_result r) { seen = r.failure; }),
                f.time.now() + 1s);
    f.time.advance(2s);
    f.settle();
    CHECK(seen == errc::timed_out);
    CHECK(seen.ran() == ran);
  }
}

TEST_CASE("slots: a slot that was opened and closed is used again, and its deadline is gone") {
  fixture f;
  const auto first = f.slots.open(f.time.now() + 1s);
  f.slots.close(first);
  CHECK(f.deadlines.empty());
  const auto second = f.slots.open(f.time.now() + 1s);
  CHECK(static_cast<std::uint32_t>(first) == static_cast<std::uint32_t>(second));
  CHECK(first != second);
  f.slots.close(second);
  CHECK_FALSE(f.slots.complete(first, {}));
}

TEST_CASE("slots: who waits can be failed by the frame it waits for, or dropped") {
  fixture f;
  std::vector<weft::call_progress> seen;
  for (std::uint64_t frame = 0; frame < 4; ++frame) {
    const auto call = f.slots.open(f.time.now() + 1s);
    weft::async_wait_for_reply(
        f.slots, {call, frame},
        asio::bind_executor(f.io, [&seen](call_result r) { seen.push_back(r.failure.ran()); }));
  }
  f.slots.fail_all([](std::uint64_t frame) {
    return weft::error(errc::peer_died, "",
                       frame < 2 ? weft::call_progress::maybe_executed
                                 : weft::call_progress::not_sent);
  });
  f.settle();
  using enum weft::call_progress;
  CHECK(seen ==
        std::vector<weft::call_progress>{maybe_executed, maybe_executed, not_sent, not_sent});
  const auto alive = std::make_shared<int>(0);
  f.slots.add(asio::bind_executor(f.io, [alive](call_result) {}), f.time.now() + 1s);
  CHECK(alive.use_count() == 2);
  f.slots.drop_all();
  CHECK(alive.use_count() == 1);
  CHECK(f.slots.waiting() == 0);
  CHECK(f.deadlines.empty());
}

}  // namespace reply_slot
