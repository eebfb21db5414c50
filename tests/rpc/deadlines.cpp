// SPDX-License-Identifier: BSL-1.0
// Deadlines and cancellation: every wait ends, the other side hears of it, the link stays usable.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <cstdint>
#include <mutex>
#include <rpc/cluster.hpp>
#include <string>

namespace call_deadlines {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::errc;
using weft::event;
using weft::immediate;
using weft::make_intrusive;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }

std::atomic<int> waiting{0};
std::atomic<int> cancelled{0};

/// Waits until it is cancelled.
asio::awaitable<int> wait_for_ever() {
  ++waiting;
  try {
    co_await for_ever();
  } catch (const std::system_error&) {
    ++cancelled;
    throw;
  }
  co_return 1;
}
/// Waits in a call to the next worker.
asio::awaitable<int> wait_below(worker& me) {
  co_return co_await me.peer((me.rank() + 1) % me.world_size()).call<&wait_for_ever>();
}
asio::awaitable<int> how_many_cancelled() { co_return cancelled.load(); }

/// Asks until `rank` has seen that many cancellations.
asio::awaitable<void> until_cancelled(worker& me, int rank, int count) {
  const auto p = me.peer(rank);
  for (bounded_wait until("the callees were cancelled");
       until.not_yet(co_await p.call<&how_many_cancelled>(within(60s)) >= count);) {
  }
}

/// How `call(limit)` fails. It is tried again, with more time, until `wait_for_ever` began in time.
template <class Call>
asio::awaitable<weft::error> failure_once_begun(weft::duration& limit, Call call) {
  waiting = cancelled = 0;
  weft::error e;
  for (bounded_wait until("the innermost function began in time"); until.not_yet(waiting > 0);) {
    if (e) limit *= 2;
    e = co_await call(limit);
  }
  co_return e;
}

TEST_CASE("deadline: within ends the call, and the callee's coroutine is cancelled") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    CHECK(co_await p.call<&add>(1, 2) == 3);  // the link is there
    weft::duration limit = 20ms;
    weft::time_point begun;
    const auto e = co_await failure_once_begun(limit, [&](weft::duration left) {
      begun = me.time().now();
      return failure_of(p.call<&wait_for_ever>(within(left), as_expected));
    });
    CHECK(me.time().now() - begun >= limit);
    CHECK(e == errc::timed_out);
    CHECK(e.ran() == call_progress::maybe_executed);
    CHECK(e.detail().peer == "worker1");
    CHECK(e.detail().function == "call_deadlines::wait_for_ever");
    CHECK(e.detail().deadline >= limit - 1ms);
    CHECK(e.detail().deadline <= limit);
    CHECK(e.detail().elapsed >= limit);
    co_await until_cancelled(me, 1, 1);
    CHECK(co_await p.call<&add>(1, 2) == 3);
  });
}

TEST_CASE("deadline: the default applies where nothing else is said") {
  weft::options o = with_io_threads(1);
  o.call_deadline = 30ms;
  cancelled = 0;
  run_well(2, over::tcp, o, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    CHECK(co_await me.peer(1).call<&add>(1, 2, within(10s)) == 3);
    weft::duration limit = 30ms;
    const auto e = co_await failure_once_begun(limit, [&](weft::duration) {  // always the default
      return failure_of(me.peer(1).call<&wait_for_ever>(as_expected));
    });
    CHECK(e == errc::timed_out);
    CHECK(e.detail().deadline <= 30ms);
    co_await until_cancelled(me, 1, 1);
  });
}

asio::awaitable<std::int64_t> left_here(worker& me) {
  const auto scope = weft::this_scope();
  co_return scope && scope->deadline
      ? std::chrono::duration_cast<std::chrono::milliseconds>(*scope->deadline - me.time().now())
            .count()
      : -1;
}
std::int64_t left_on_pool(worker& me) {
  const auto scope = weft::this_scope();
  return std::chrono::duration_cast<std::chrono::milliseconds>(*scope->deadline - me.time().now())
      .count();
}
asio::awaitable<std::int64_t> left_below(worker& me) {
  co_return co_await me.peer(0).call<&left_here>(within(1h));
}

TEST_CASE("deadline: inherited by the function and by nested calls, which can only shorten it") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    for (const std::int64_t left :
         {co_await p.call<&left_here>(within(30s)), co_await p.call<&left_on_pool>(within(30s)),
          co_await p.call<&left_below>(within(30s))}) {
      CHECK(left <= 30'000);
      CHECK(left > 0);
    }
    CHECK(co_await p.call<&left_here>() > 30'000);  // the default, a minute
  });
}

TEST_CASE("deadline: a nested wait ends with the outer call, all the way down") {
  everywhere(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (std::uint32_t r = 0; r < 3; ++r) CHECK(co_await me.peer(r).call<&add>(1, 2) == 3);
    weft::duration limit = 30ms;
    const auto e = co_await failure_once_begun(limit, [&](weft::duration left) {
      return failure_of(me.peer(1).call<&wait_below>(within(left), as_expected));
    });
    CHECK(e == errc::timed_out);
    co_await until_cancelled(me, 2, 1);
  });
}

std::atomic<bool> ran_out{false};
/// Fails for want of time, not before the caller's is over.
int run_out_of_time(worker& me) {
  const auto deadline = weft::this_scope()->deadline.value();
  while (me.time().now() < deadline) std::this_thread::yield();
  ran_out = true;
  throw weft::rpc_error(errc::timed_out, "a wait inside");
}

TEST_CASE("deadline: a function that ran out of its caller's time is a call that timed out") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (int round = 0; round < 5; ++round) {
      ran_out = false;
      auto reply = me.peer(1).start<&run_out_of_time>(within(5ms));
      // This thread's timers do not run meanwhile. (The function may not even have begun in time.)
      const auto enough = me.time().now() + 1s;
      while (!ran_out && me.time().now() < enough) std::this_thread::yield();
      try {
        co_await std::move(reply);
        FAIL("it has no result");
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::timed_out);
      }
    }
  });
}

std::atomic<bool> begun{false};
std::atomic<bool> let_go{false};
/// Cannot be cancelled: the reply comes when nobody waits for it any more.
int answer_late() {
  begun = true;
  for (bounded_wait until("the test lets the function go"); until.not_yet(let_go);) {
    std::this_thread::yield();
  }
  return 5;
}
immediate<void> nothing() { return {}; }
TEST_CASE("deadline: a late reply is dropped and counted, and met by no other call") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    // Only a function that began in time answers late: one that did not is told so at once, which
    // may or may not be in time. Then it is tried again, with more.
    begun = let_go = false;
    std::uint64_t before = 0;
    weft::future<int> late;
    weft::duration limit = 20ms;
    for (bounded_wait until("the function began in time"); until.not_yet(begun); limit *= 2) {
      CHECK(co_await p.call<&add>(1, 1) == 2);  // nothing of an earlier try is under way
      before = me.stats().late_replies;
      late = p.start<&answer_late>(within(limit));
      for (bounded_wait end("the function began or never will");
           end.not_yet(begun || late.ready());) {
        co_await p.call<&nothing>();
      }
    }
    const auto e = co_await failure_of(std::move(late));
    CHECK(e == errc::timed_out);
    CHECK(e.ran() == call_progress::maybe_executed);
    auto next = p.start<&add>(3, 4);  // takes the slot that is free now
    let_go = true;
    CHECK(co_await std::move(next) == 7);
    // The same thread sent both replies, one after the other.
    CHECK(me.stats().late_replies == before + 1);
  });
}

TEST_CASE("deadline: one that has passed before the function begins") {
  // The only thread of the pool is busy until the second request's deadline has passed.
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    let_go = false;
    const auto p = me.peer(1);
    auto busy = p.start<&answer_late>();
    const auto e = co_await failure_of(p.call<&add>(1, 2, within(20ms), as_expected));
    CHECK(e == errc::timed_out);
    let_go = true;
    CHECK(co_await std::move(busy) == 5);
    CHECK(co_await p.call<&add>(1, 2) == 3);
  });
}

TEST_CASE("cancellation: cancelling the caller's coroutine cancels the callee's") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    waiting = cancelled = 0;
    std::string ending;
    asio::cancellation_signal stop;
    const auto over = make_intrusive<event>();
    auto caller = [&](weft::peer p) -> asio::awaitable<void> {
      try {
        co_await p.call<&wait_for_ever>();
        ending = "returned";
      } catch (const weft::rpc_error& e) {
        ending = e.error() == errc::cancelled ? "cancelled" : e.what();
      }
    };
    asio::co_spawn(
        weft::detail::context_of(me), caller(me.peer(1)),
        asio::bind_cancellation_slot(stop.slot(), [over](std::exception_ptr) { over->set(); }));
    for (bounded_wait until("the callee waits"); until.not_yet(waiting >= 1);) {
      co_await me.peer(1).call<&nothing>();
    }
    stop.emit(asio::cancellation_type::terminal);
    co_await event::async_wait(over, asio::use_awaitable);
    CHECK(ending == "cancelled");
    co_await until_cancelled(me, 1, 1);
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
  });
}

TEST_CASE("cancellation: dropping a future cancels the callee, detaching it does not") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    waiting = cancelled = 0;
    {
      auto dropped = me.peer(1).start<&wait_for_ever>();
      auto detached = me.peer(1).start<&wait_for_ever>(within(1h));
      for (bounded_wait until("both callees wait"); until.not_yet(waiting >= 2);) {
        co_await me.peer(1).call<&nothing>();
      }
      std::move(detached).detach();
    }
    co_await until_cancelled(me, 1, 1);
    CHECK(cancelled == 1);
  });
}

TEST_CASE("cancellation: it reaches calls two workers down") {
  everywhere(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    waiting = cancelled = 0;
    {
      auto dropped = me.peer(1).start<&wait_below>();
      for (bounded_wait until("the callee below waits"); until.not_yet(waiting >= 1);) {
        co_await me.peer(2).call<&nothing>();
      }
    }
    co_await until_cancelled(me, 2, 1);
  });
}

TEST_CASE("cancellation: many calls cancelled at once leave no slot behind") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    waiting = cancelled = 0;
    for (int round = 0; round < 5; ++round) {
      std::vector<weft::future<int>> futures;
      for (int i = 0; i < 40; ++i) futures.push_back(me.peer(1).start<&wait_for_ever>());
      CHECK(co_await me.peer(1).call<&add>(round, 1) == round + 1);
      futures.clear();
      CHECK(co_await me.peer(1).call<&add>(round, 2) == round + 2);
    }
    co_await until_cancelled(me, 1, waiting);
  });
}

std::atomic<int> begun_late{0};
asio::awaitable<void> note_begun() {
  ++begun_late;
  co_return;
}
/// Keeps the worker's thread, as a computation does.
asio::awaitable<void> hold_thread() {
  for (bounded_wait until("the thread is let go"); until.not_yet(let_go);) {
    std::this_thread::yield();
  }
  co_return;
}

TEST_CASE("deadline: a coroutine function whose deadline has passed is not begun") {
  for (const unsigned io_threads : io_ways()) {
    run_well(2, over::tcp, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      let_go = false;
      begun_late = 0;
      const auto p = me.peer(1);
      auto held = p.start<&hold_thread>();
      const auto e = co_await failure_of(p.call<&note_begun>(within(20ms), as_expected));
      CHECK(e == errc::timed_out);
      // The callee counts from the arrival: give it as much time again.
      asio::steady_timer t(weft::detail::context_of(me), 40ms);
      co_await t.async_wait(asio::use_awaitable);
      let_go = true;
      co_await std::move(held);
      CHECK(co_await p.call<&add>(1, 2) == 3);
      CHECK(begun_late == 0);
    });
  }
}

/// What each way to call gives if its time is over, or the scope's: a call, a started one, and one
/// that is awaited elsewhere.
template <class... Options>
asio::awaitable<void> check_unsent(worker& me, Options... over) {
  const auto p = me.peer(1);
  asio::thread_pool other(1);
  const auto calls = me.stats().calls;
  auto awaited_there = p.call<&add>(1, 2, over..., as_expected);
  const auto called = co_await failure_of(p.call<&add>(1, 2, over..., as_expected));
  const auto started = co_await failure_of(p.start<&add>(1, 2, over...));
  const auto there =
      co_await failure_of(asio::co_spawn(other, std::move(awaited_there), asio::use_awaitable));
  const bool inherited = weft::this_scope() && weft::this_scope()->deadline;
  for (const auto& e : {called, started, there}) {
    if (!e && inherited) continue;  // what is awaited elsewhere inherits nothing
    CHECK(e == errc::timed_out);
    CHECK(e.ran() == call_progress::not_sent);
    CHECK(e.detail().text == "the deadline had passed before it was sent");
    CHECK(e.detail().function == "call_deadlines::add");
    CHECK(e.detail().peer == "worker1");
  }
  CHECK(called);
  CHECK(started);
  CHECK(me.stats().calls == calls + (inherited ? 1 : 0));
}

TEST_CASE("deadline: a call whose time is over when it begins is not sent") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);  // the link is there
    for (const weft::duration limit :
         {weft::duration(0), weft::duration(-1), weft::duration::min()}) {
      co_await check_unsent(me, within(limit));
    }
    auto late = make_intrusive<weft::call_scope>();
    late->deadline = me.time().now() - 1ms;
    co_await weft::with_scope(weft::detail::context_of(me), late, check_unsent(me));
    co_await weft::with_scope(weft::detail::context_of(me), late, check_unsent(me, within(1h)));
    CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
  });
}

asio::awaitable<double> seconds_left() {
  const auto deadline = weft::this_scope()->deadline;
  if (!deadline) co_return -1;
  co_return std::chrono::duration<double>(*deadline - std::chrono::steady_clock::now()).count();
}

std::pair<int, double> noted_by_post;  // on the callee's thread
asio::awaitable<void> note_seconds_left() {
  const double left = co_await seconds_left();
  noted_by_post = {noted_by_post.first + 1, left};
}
asio::awaitable<void> forget_noted() {
  noted_by_post = {};
  co_return;
}
asio::awaitable<std::pair<int, double>> last_noted() { co_return noted_by_post; }

TEST_CASE("deadline: long ones arrive as long as they are, and posts have those they are given") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    for (const auto limit : {60s, 3600s, 24 * 3600s, 20 * 24 * 3600s}) {
      const double wanted = std::chrono::duration<double>(limit).count();
      const double left = co_await p.call<&seconds_left>(within(limit));
      CHECK(left <= wanted);
      CHECK(left > wanted - 30);
    }
    CHECK(co_await p.call<&seconds_left>(within(1000 * 24h)) == -1);  // none that the wire can say
    CHECK(co_await p.call<&seconds_left>(within(std::chrono::nanoseconds::max())) == -1);
    CHECK(co_await p.call<&seconds_left>(within(std::chrono::hours::max())) == -1);
    int posts = 0;
    co_await p.call<&forget_noted>();
    const auto noted = [&]() -> asio::awaitable<double> {
      std::pair<int, double> now;
      ++posts;
      for (bounded_wait until("the post ran"); until.not_yet(now.first == posts);) {
        now = co_await p.call<&last_noted>();
      }
      co_return now.second;
    };
    p.post<&note_seconds_left>();
    CHECK(co_await noted() == -1);
    p.post<&note_seconds_left>(within(3600s));
    const double left = co_await noted();
    CHECK(left <= 3600);
    CHECK(left > 3570);
  });
}

}  // namespace call_deadlines
