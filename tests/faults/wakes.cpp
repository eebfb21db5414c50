// SPDX-License-Identifier: BSL-1.0
// Who waits is woken though there is no memory at all.
#include "shortage.hpp"
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/bare_error.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/task_group.hpp>
#include <weft/optim/detail/write_turns.hpp>
#include <weft/rref/detail/adapted.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <exception>
#include <new>
#include <rpc/bare_worker.hpp>
#include <tuple>
#include <vector>

namespace poor_wakes {

using weft::event;
using weft::intrusive_ptr;
using weft::testing::all_of_them;
using weft::testing::shortage;

asio::awaitable<void> note_when_set(intrusive_ptr<event> e, int n, std::vector<int>& woken) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
  woken.push_back(n);
}

TEST_CASE("shortage: an event wakes all who wait, in their order, without memory") {
  asio::io_context io;
  const auto e = weft::make_intrusive<event>();
  std::vector<int> woken;
  woken.reserve(4);
  for (int n = 0; n < 4; ++n) {
    if (n % 2 == 0) {
      asio::co_spawn(io, note_when_set(e, n, woken), asio::detached);
    } else {
      asio::co_spawn(weft::scoped(io, weft::make_intrusive<weft::call_scope>()),
                     note_when_set(e, n, woken), asio::detached);
    }
  }
  io.poll();
  {
    const shortage now(1, all_of_them);
    e->set();
    io.restart();
    io.poll();
  }
  CHECK(woken == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("shortage: what was woken and never ran goes with its io_context") {
  std::vector<int> woken;
  const auto e = weft::make_intrusive<event>();
  {
    asio::io_context io;
    asio::co_spawn(io, note_when_set(e, 1, woken), asio::detached);
    io.poll();
    e->set();
  }
  CHECK(woken.empty());
  CHECK(e->use_count() == 1);  // its coroutine held another
}

asio::awaitable<void> wait_in(intrusive_ptr<weft::detail::pipe_waiter> place, int& passed) {
  co_await place->wait();
  ++passed;
}

TEST_CASE("shortage: a coroutine of a pipe is woken without memory") {
  asio::io_context io;
  const auto place = weft::make_intrusive<weft::detail::pipe_waiter>(io);
  int passed = 0;
  asio::co_spawn(io, wait_in(place, passed), asio::detached);
  io.poll();
  {
    const shortage now(1, all_of_them);
    place->wake();
    place->wake();
  }
  io.restart();
  io.poll();
  CHECK(passed == 1);
}

asio::awaitable<void> wait_for(intrusive_ptr<event> e) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
}

TEST_CASE("shortage: a task group's last child ends it without memory") {
  asio::io_context io;
  const auto e = weft::make_intrusive<event>();
  bool joined = false;
  const auto body = [](intrusive_ptr<event> wanted, bool& out) -> asio::awaitable<void> {
    co_await weft::with_task_group([&wanted](weft::task_group& group) -> asio::awaitable<void> {
      group.spawn(wait_for(wanted));
      group.spawn(wait_for(wanted));
      co_return;
    });
    out = true;
  };
  asio::co_spawn(io, body(e, joined), asio::detached);
  io.poll();
  {
    const shortage now(1, all_of_them);
    e->set();
    io.restart();
    io.poll();
  }
  CHECK(joined);
}

TEST_CASE("shortage: whoever leaves the queue of writers can leave it again") {
  int failed = 0;
  bool struck = true;
  for (long n = 1; struck && n < 50; ++n) {
    CAPTURE(n);
    const int memory = 0;
    weft::optim::detail::write_turns<int> turns;
    const auto first = turns.enter({&memory}, 1);
    const auto second = turns.enter({&memory}, 2);
    REQUIRE(turns.is_granted(first));
    REQUIRE_FALSE(turns.is_granted(second));
    std::vector<int> now;
    try {
      const shortage lack(n, 0);
      now = turns.leave(first);
      struck = shortage::struck();
    } catch (const std::bad_alloc&) {
      ++failed;
      CHECK_FALSE(turns.is_granted(second));
      now = turns.leave(first);
    }
    CHECK(now == std::vector<int>{2});
    CHECK(turns.is_granted(second));
    CHECK(turns.leave(second).empty());
    CHECK(turns.empty());
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

/// Whether the error itself was told, with every allocation from the nth on failing, or one only.
bool told_whole(long nth, long further, bool& struck) {
  std::exception_ptr told;
  {
    const shortage now(nth, further);
    told = weft::detail::sure_exception(weft::errc::shutting_down, "a text too long for small ones",
                                        weft::call_progress::not_executed);
    struck = shortage::struck();
  }
  REQUIRE(told);
  try {
    std::rethrow_exception(told);
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == weft::errc::shutting_down);
    CHECK(e.error().ran() == weft::call_progress::not_executed);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST_CASE("shortage: what is told without memory is the error, or the lack of it") {
  for (const long further : {0L, all_of_them}) {
    int whole = 0;
    bool struck = true;
    for (long nth = 1; struck; ++nth) {  // bounded: fewer than thirty allocations
      CAPTURE(nth);
      const bool is_whole = told_whole(nth, further, struck);
      if (is_whole) ++whole;
      if (!struck) CHECK(is_whole);
    }
    CHECK(whole >= (further == 0 ? 2 : 1));  // its words are not needed
  }
}

struct asked : weft::invocation {
  explicit asked(weft::worker& me)
      : invocation(me, weft::frame(), weft::default_limits, {}, 0, "worker0") {}
};
struct no_function {
  using result = int;
  using arguments = std::tuple<>;
  static int call(weft::invocation&, std::tuple<>&&) { return 1; }
};

TEST_CASE("shortage: a request that the pool dropped is told so without memory") {
  weft::testing::bare_worker me;
  const auto request = weft::make_intrusive<asked>(me);
  const auto job =
      weft::make_intrusive<weft::detail::pool_run<no_function>>(*request, std::tuple<>());
  {
    const shortage now(1, all_of_them);
    job->drop();
    CHECK(shortage::struck());
  }
  CHECK(job->done->is_set());
  CHECK_FALSE(job->give_up());
  CHECK_THROWS_AS(job->take(), std::bad_alloc);
}

}  // namespace poor_wakes
