// SPDX-License-Identifier: BSL-1.0
#include <weft/core/event.hpp>

#include <asio/bind_executor.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <core/loop.hpp>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace core_event {

using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::testing::settle;
using weft::testing::task;

asio::awaitable<void> wait_for(intrusive_ptr<event> e) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
}

TEST_CASE("event: a wait before and a wait after it is set both end") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  task before(io, wait_for(e));
  settle(io);
  CHECK_FALSE(before.ended());
  CHECK_FALSE(e->is_set());
  e->set();
  CHECK(e->is_set());
  CHECK_FALSE(before.ended());  // its executor resumes it, not the setter
  settle(io);
  CHECK(before.ended());
  task after(io, wait_for(e));
  settle(io);
  CHECK(after.ended());
  CHECK_FALSE(after.failed());
}

TEST_CASE("event: wakes all waiters, once") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::vector<std::unique_ptr<task>> tasks;
  for (int i = 0; i < 10; ++i) tasks.push_back(std::make_unique<task>(io, wait_for(e)));
  settle(io);
  e->set();
  e->set();
  settle(io);
  for (const auto& t : tasks) CHECK(t->ended());
}

TEST_CASE("event: a cancelled wait ends with operation_aborted, the others go on") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  task first(io, wait_for(e));
  task second(io, wait_for(e));
  settle(io);
  first.cancel();
  settle(io);
  CHECK(first.failed());
  CHECK_FALSE(second.ended());
  e->set();
  settle(io);
  CHECK(second.ended());
  CHECK_FALSE(second.failed());
}

TEST_CASE("event: cancelling twice never ends a later wait") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  asio::cancellation_signal stop;
  int ended = 0;
  event::async_wait(e, asio::bind_cancellation_slot(
                           stop.slot(), asio::bind_executor(io, [&](asio::error_code ec) {
                             CHECK(ec == asio::error::operation_aborted);
                             ++ended;
                           })));
  stop.emit(asio::cancellation_type::terminal);
  settle(io);
  CHECK(ended == 1);
  task later(io, wait_for(e));  // may lie where the first waiter lay
  settle(io);
  stop.emit(asio::cancellation_type::terminal);
  settle(io);
  CHECK_FALSE(later.ended());
  e->set();
  settle(io);
  CHECK_FALSE(later.failed());
}

TEST_CASE("event: cancelled and set at once, a wait ends once") {
  asio::io_context io;
  for (const bool cancel_first : {true, false}) {
    const auto e = make_intrusive<event>();
    task t(io, wait_for(e));
    settle(io);
    if (cancel_first) t.cancel();
    e->set();
    if (!cancel_first) t.cancel();
    settle(io);
    CHECK(t.ended());
    CHECK(t.failed() == cancel_first);
  }
}

TEST_CASE("event: unset with waiters, it goes down with their io_context") {
  const auto alive = std::make_shared<int>(0);
  const auto e = make_intrusive<event>();
  {
    asio::io_context io;
    auto wait = [](intrusive_ptr<event> what, std::shared_ptr<int>) -> asio::awaitable<void> {
      co_await wait_for(std::move(what));
    };
    // One waits on an event that only it holds, one on an event that lives longer.
    asio::co_spawn(io, wait(make_intrusive<event>(), alive), [](std::exception_ptr) {});
    asio::co_spawn(io, wait(e, alive), [](std::exception_ptr) {});
    event::async_wait(e, asio::bind_executor(io, [alive](asio::error_code) {}));
    settle(io);
    CHECK(alive.use_count() == 4);
  }
  CHECK(alive.use_count() == 1);
  e->set();
}

TEST_CASE("event: set from another thread while coroutines come and go") {
  for (int round = 0; round < 200; ++round) {
    asio::io_context io;
    const auto e = make_intrusive<event>();
    const auto work = asio::make_work_guard(io);
    std::atomic<int> ended{0};
    auto one = [](intrusive_ptr<event> what, std::atomic<int>& count,
                  asio::io_context& c) -> asio::awaitable<void> {
      co_await wait_for(std::move(what));
      if (++count == 4) c.stop();
    };
    std::thread setter([&] { e->set(); });
    for (int i = 0; i < 4; ++i) asio::co_spawn(io, one(e, ended, io), [](std::exception_ptr) {});
    io.run();
    setter.join();
    CHECK(ended == 4);
  }
}

TEST_CASE(
    "event: waiters are cancelled in any order, the rest woken in the order of their coming") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  constexpr int count = 1000;
  std::vector<int> woken;
  auto wait = [](intrusive_ptr<event> what, std::vector<int>& log,
                 int number) -> asio::awaitable<void> {
    co_await wait_for(std::move(what));
    log.push_back(number);
  };
  std::vector<std::unique_ptr<task>> tasks;
  for (int i = 0; i < count; ++i) tasks.push_back(std::make_unique<task>(io, wait(e, woken, i)));
  settle(io);
  // The first, the last, and most of those between.
  std::vector<int> left;
  for (int i = 0; i < count; ++i) {
    const int which = (i * 7919) % count;
    if (which % 10 != 5) tasks[static_cast<std::size_t>(which)]->cancel();
    if (i % 10 == 5) left.push_back(i);
  }
  settle(io);
  CHECK(woken.empty());
  e->set();
  settle(io);
  CHECK(woken == left);
  for (const auto& t : tasks) REQUIRE(t->ended());
}

}  // namespace core_event
