// SPDX-License-Identifier: BSL-1.0
// Coroutines serve one call after another: a call inherits nothing from the one before.
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <cstdint>
#include <rpc/cluster.hpp>

namespace runner_reuse {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::errc;
using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::within;
using weft::worker;

/// What the coroutine runs in: the same for every call that it serves.
asio::awaitable<std::uint64_t> runner_of_this() {
  using executor = weft::scope_executor<asio::io_context::executor_type>;
  const auto mine = co_await asio::this_coro::executor;
  const auto* target = mine.target<executor>();
  co_return target ? reinterpret_cast<std::uint64_t>(target->installed().get()) : 0;
}

asio::awaitable<std::uint64_t> which_runner() { co_return co_await runner_of_this(); }

TEST_CASE("reuse: one coroutine serves calls that leave nothing") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto first = co_await me.peer(1).call<&which_runner>();
    CHECK(first != 0);
    for (int i = 0; i < 10; ++i) {
      const auto next = co_await me.peer(1).call<&which_runner>();
      CHECK(next == first);
    }
  });
}

// One worker at a time uses these, on its own thread; the test's callers wait for its replies.
intrusive_ptr<event> go;
intrusive_ptr<event> gone;
std::atomic<std::int64_t> minutes_left{0};

/// Outlives the call that began it.
asio::awaitable<void> left_over(intrusive_ptr<event> start, intrusive_ptr<event> end, worker& me) {
  co_await event::async_wait(start, asio::use_awaitable);
  const auto scope = weft::this_scope();
  minutes_left =
      scope && scope->deadline
          ? std::chrono::duration_cast<std::chrono::minutes>(*scope->deadline - me.time().now())
                .count()
          : -1;
  end->set();
}
asio::awaitable<std::uint64_t> leave_something(worker& me) {
  go = make_intrusive<event>();
  gone = make_intrusive<event>();
  asio::co_spawn(co_await asio::this_coro::executor, left_over(go, gone, me), asio::detached);
  co_return co_await runner_of_this();
}
/// Lets the left-over work run while this is served.
asio::awaitable<std::uint64_t> serve_beside_it() {
  go->set();
  co_await event::async_wait(gone, asio::use_awaitable);
  co_return co_await runner_of_this();
}

TEST_CASE("reuse: what a coroutine's first call left over never runs in the next call's scope") {
  for (const bool first : {true, false}) {
    CAPTURE(first);
    everywhere(2, [first](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const auto p = me.peer(1);
      if (!first) co_await p.call<&which_runner>();
      const auto left = co_await p.call<&leave_something>(within(1min));
      const auto beside = co_await p.call<&serve_beside_it>(within(30min));
      CHECK(minutes_left.load() < 2);  // the second call has half an hour
      CHECK(beside != left);
    });
  }
}

std::atomic<int> stopped{0};
std::atomic<bool> begun{false};
/// Waits until it is cancelled.
asio::awaitable<void> wait_for_ever() {
  begun = true;
  try {
    co_await for_ever();
  } catch (const std::system_error&) {
    ++stopped;
    throw;
  }
}
asio::awaitable<std::uint64_t> refuse_cancellation() {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  co_return co_await runner_of_this();
}
asio::awaitable<std::uint64_t> do_not_throw() {
  co_await asio::this_coro::throw_if_cancelled(false);
  co_return co_await runner_of_this();
}
asio::awaitable<bool> throws_if_cancelled() {
  co_return co_await asio::this_coro::throw_if_cancelled();
}

TEST_CASE("reuse: a function that disabled cancellation did so for itself only") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    const auto refused = co_await p.call<&refuse_cancellation>();
    const auto again = co_await p.call<&which_runner>();
    CHECK(again == refused);  // it serves again
    stopped = 0;
    begun = false;
    {
      auto call = p.start<&wait_for_ever>();
      for (bounded_wait until("the function began"); until.not_yet(begun);) {
        co_await p.call<&throws_if_cancelled>();
      }
    }  // dropped: cancelled
    for (bounded_wait until("the callee's coroutine was cancelled"); until.not_yet(stopped == 1);) {
      co_await p.call<&throws_if_cancelled>();
    }
  });
}

TEST_CASE("reuse: a function that wanted no exceptions had none itself only") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    const auto quiet = co_await p.call<&do_not_throw>();
    const auto again = co_await p.call<&which_runner>();
    CHECK(again == quiet);
    const bool throws = co_await p.call<&throws_if_cancelled>();
    CHECK(throws);
  });
}

}  // namespace runner_reuse
