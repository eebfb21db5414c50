// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/core/sleep_for.hpp>

#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/context_owner.hpp>
#include <core/loop.hpp>
#include <core/manual_clock.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace core_sleep_for {

using namespace std::chrono_literals;
using weft::event;
using weft::make_intrusive;
using weft::sleep_for;
using weft::with_deadline;
using weft::testing::settle;
using weft::testing::task;

/// A worker whose time the test moves.
class time_of_a_test final : public weft::testing::owner_in_a_test {
 public:
  using owner_in_a_test::owner_in_a_test;
  [[nodiscard]] weft::clock& time_here() const noexcept override { return clock; }
  void submit(weft::intrusive_ptr<weft::detail::pool_job>) override { FAIL("no pool"); }
  mutable weft::testing::manual_clock clock;
};

asio::awaitable<int> number_after(weft::duration d, int value) {
  co_await sleep_for(d);
  co_return value;
}

TEST_CASE("sleep_for: by the clock of the worker") {
  asio::io_context io;
  time_of_a_test here(io);
  task t(io, sleep_for(100ms));
  settle(io);
  here.clock.advance(99ms);
  CHECK_FALSE(t.ended());
  here.clock.advance(1ms);
  CHECK(t.ended());
  task none(io, sleep_for(-1s));
  settle(io);
  here.clock.advance(0s);
  CHECK(none.ended());
}

TEST_CASE("sleep_for: cancelled") {
  asio::io_context io;
  time_of_a_test here(io);
  task t(io, sleep_for(1h));
  settle(io);
  t.cancel();
  settle(io);
  CHECK(t.failed());
}

TEST_CASE("sleep_for: by the machine's clock where no worker lives") {
  asio::io_context io;
  task t(io, sleep_for(1ms));
  weft::testing::finish(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
}

TEST_CASE("sleep_for: not on an executor without an io_context") {
  asio::thread_pool pool(1);
  auto end = asio::co_spawn(pool, sleep_for(1ms), asio::use_future);
  pool.join();  // which drops its share of the exception before this looks at it
  CHECK_THROWS_WITH_AS(end.get(), doctest::Contains("there is no clock here"), weft::rpc_error);
}

TEST_CASE("with_deadline: what ends in time") {
  asio::io_context io;
  time_of_a_test here(io);
  int got = 0;
  const auto body = [&]() -> asio::awaitable<void> {
    got = co_await with_deadline(100ms, number_after(50ms, 5));
    co_await with_deadline(100ms, sleep_for(50ms));
    got += 1;
  };
  task t(io, body());
  settle(io);
  here.clock.advance(50ms);
  CHECK(got == 5);
  here.clock.advance(50ms);
  CHECK(got == 6);
  CHECK(t.ended());
}

TEST_CASE("with_deadline: what does not is cancelled, and timed out") {
  asio::io_context io;
  time_of_a_test here(io);
  task t(io, with_deadline(100ms, sleep_for(1h)));
  settle(io);
  here.clock.advance(99ms);
  CHECK_FALSE(t.ended());
  here.clock.advance(1ms);
  CHECK(t.ended());
  CHECK(t.what().find("timed out") != std::string::npos);
  CHECK(t.what().find("100 ms") != std::string::npos);
}

TEST_CASE("with_deadline: errors of the work are its own") {
  asio::io_context io;
  time_of_a_test here(io);
  const auto fails = []() -> asio::awaitable<void> {
    co_await sleep_for(10ms);
    throw std::runtime_error("its own");
  };
  task t(io, with_deadline(100ms, fails()));
  settle(io);
  here.clock.advance(10ms);
  CHECK(t.what() == "its own");
}

TEST_CASE("with_deadline: of a future, whose work is asked to end") {
  asio::io_context io;
  time_of_a_test here(io);
  std::string ending;
  const auto work = [&]() -> asio::awaitable<int> {
    try {
      co_await sleep_for(1h);
    } catch (const std::system_error&) {
      ending = "cancelled";
      throw;
    }
    co_return 1;
  };
  const auto body = [&]() -> asio::awaitable<void> {
    auto f = weft::start_on(co_await asio::this_coro::executor, work());
    co_await with_deadline(100ms, std::move(f));
  };
  task t(io, body());
  settle(io);
  here.clock.advance(100ms);
  settle(io);
  CHECK(t.what().find("timed out") != std::string::npos);
  CHECK(ending == "cancelled");
}

TEST_CASE("with_deadline: what the work has done counts, though its caller is cancelled") {
  asio::io_context io;
  time_of_a_test here(io);
  const auto end = make_intrusive<event>();
  int got = 0;
  const auto work = [&]() -> asio::awaitable<int> {
    co_await event::wait(end);
    co_return 6;
  };
  const auto body = [&]() -> asio::awaitable<void> { got = co_await with_deadline(1s, work()); };
  task t(io, body());
  settle(io);
  end->set();  // its resumption is queued when its caller is cancelled
  t.cancel();
  settle(io);
  CHECK(got == 6);
}

TEST_CASE("with_deadline: a result need not be default constructible") {
  struct number {
    explicit number(int v) : value(v) {}
    int value;
  };
  asio::io_context io;
  time_of_a_test here(io);
  int got = 0;
  const auto work = []() -> asio::awaitable<number> { co_return number(3); };
  const auto body = [&]() -> asio::awaitable<void> {
    got = (co_await with_deadline(1s, work())).value;
  };
  task t(io, body());
  settle(io);
  CHECK(got == 3);
}

TEST_CASE("with_deadline: cancelled, it is no time-out") {
  asio::io_context io;
  time_of_a_test here(io);
  task t(io, with_deadline(100ms, sleep_for(1h)));
  settle(io);
  t.cancel();
  settle(io);
  CHECK(t.failed());
  CHECK(t.what().find("timed out") == std::string::npos);
}

TEST_CASE("with_deadline: what it calls inherits the nearer deadline") {
  asio::io_context io;
  time_of_a_test here(io);
  std::vector<weft::duration> left;
  const auto look = [&]() -> asio::awaitable<void> {
    left.push_back(*weft::this_scope()->deadline - here.clock.now());
    co_return;
  };
  const auto outer = [&]() -> asio::awaitable<void> {
    co_await with_deadline(1s, look());
    co_await with_deadline(1h, look());
  };
  task t(io, with_deadline(1min, outer()));
  settle(io);
  CHECK(t.ended());
  CHECK(left == std::vector<weft::duration>{1s, 1min});
}

TEST_CASE("with_deadline: it lasts until the work has ended, which may come in time after all") {
  asio::io_context io;
  time_of_a_test here(io);
  const auto end = make_intrusive<event>();
  const auto stubborn = [&]() -> asio::awaitable<int> {
    co_await asio::this_coro::throw_if_cancelled(false);
    try {
      co_await sleep_for(1h);
    } catch (const std::system_error&) {
    }
    co_await asio::this_coro::reset_cancellation_state();
    co_await event::wait(end);
    co_return 4;
  };
  int got = 0;
  const auto body = [&]() -> asio::awaitable<void> {
    got = co_await with_deadline(100ms, stubborn());
  };
  task t(io, body());
  settle(io);
  here.clock.advance(1s);
  CHECK_FALSE(t.ended());
  end->set();
  settle(io);
  CHECK(t.ended());
  CHECK(got == 4);
}

}  // namespace core_sleep_for
