// SPDX-License-Identifier: BSL-1.0
// Calls that are awaited on another executor than the worker's.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <atomic>
#include <core/for_ever.hpp>
#include <rpc/cluster.hpp>
#include <string>
#include <thread>
#include <vector>

namespace elsewhere {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::errc;
using weft::immediate;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }
std::atomic<int> waiting{0};
std::atomic<int> ended{0};
asio::awaitable<int> wait_for_ever() {
  struct count {
    ~count() { ++ended; }
  } here;
  ++waiting;
  co_await for_ever();
  co_return 0;
}
immediate<bool> has_scope() {
  return weft::this_scope() && weft::this_scope()->deadline.has_value();
}
asio::awaitable<int> throws() {
  co_await asio::post(asio::use_awaitable);
  throw std::out_of_range("index 7 of 3");
}

/// Where it resumed after every call.
asio::awaitable<int> many(weft::peer p, int calls, asio::any_io_executor home,
                          std::atomic<int>& strayed) {
  int right = 0;
  for (int i = 0; i < calls; ++i) {
    if (co_await p.call<&add>(i, 1) == i + 1) ++right;
    if (co_await asio::this_coro::executor != home) ++strayed;
    if (p.self().on_thread()) ++strayed;
  }
  co_return right;
}

TEST_CASE(
    "elsewhere: calls awaited on a pool, on strands and on the worker at once are all right") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    asio::thread_pool others(3);
    std::atomic<int> strayed{0};
    // Kept until all is over: a strand's executor is counted with a fence, which ThreadSanitizer
    // does not know, so it would take the last owner's end for a race.
    std::vector<asio::any_io_executor> kept;
    std::vector<std::future<int>> results;
    for (int i = 0; i < 6; ++i) {
      const asio::any_io_executor where =
          i % 2 == 0 ? asio::any_io_executor(others.get_executor())
                     : asio::any_io_executor(asio::make_strand(others.get_executor()));
      kept.push_back(where);
      results.push_back(
          asio::co_spawn(where, many(me.peer(1), 200, where, strayed), asio::use_future));
    }
    for (int i = 0; i < 200; ++i) CHECK(co_await me.peer(1).call<&add>(i, 2) == i + 2);
    // The replies need this thread: it must not block before they are all in.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    auto ready = [&] {
      return std::all_of(results.begin(), results.end(),
                         [](auto& r) { return r.wait_for(0s) == std::future_status::ready; });
    };
    while (!ready() && std::chrono::steady_clock::now() < deadline) {
      co_await me.peer(1).call<&add>(1, 1);
    }
    REQUIRE(ready());
    for (auto& r : results) CHECK(r.get() == 200);
    CHECK(strayed == 0);
    others.join();
  });
}

TEST_CASE(
    "elsewhere: nothing is inherited, errors and deadlines arrive, cancelling reaches the callee") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    waiting = ended = 0;
    asio::thread_pool others(1);
    const auto p = me.peer(1);
    const auto over = weft::make_intrusive<weft::event>();
    auto body = [](weft::peer to) -> asio::awaitable<void> {
      CHECK(co_await to.call<&has_scope>());  // the call's own
      const auto thrown = co_await failure_of(to.call<&throws>(as_expected));
      CHECK(thrown == errc::remote_exception);
      CHECK(thrown.detail().text == "index 7 of 3");
      const auto late = co_await failure_of(to.call<&wait_for_ever>(within(300ms), as_expected));
      CHECK(late == errc::timed_out);
    };
    asio::co_spawn(others, body(p), [over](std::exception_ptr e) {
      CHECK_FALSE(e);
      over->set();
    });
    co_await weft::event::async_wait(over, asio::use_awaitable);
    CHECK(waiting == 1);

    asio::cancellation_signal stop;
    const auto gone = weft::make_intrusive<weft::event>();
    std::string ending;
    auto waits = [](weft::peer to, std::string& how) -> asio::awaitable<void> {
      const auto e = co_await failure_of(to.call<&wait_for_ever>(as_expected));
      how = e.message();
      CHECK(e == errc::cancelled);
    };
    const asio::any_io_executor strand = asio::make_strand(others.get_executor());
    asio::co_spawn(
        strand, waits(p, ending),
        asio::bind_cancellation_slot(stop.slot(), [gone](std::exception_ptr) { gone->set(); }));
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (waiting < 2 && std::chrono::steady_clock::now() < deadline) {
      co_await p.call<&add>(1, 1);
    }
    REQUIRE(waiting == 2);
    asio::post(strand, [&stop] { stop.emit(asio::cancellation_type::terminal); });
    co_await weft::event::async_wait(gone, asio::use_awaitable);
    INFO(ending);
    while (ended < 2 && std::chrono::steady_clock::now() < deadline) {
      co_await p.call<&add>(1, 1);
    }
    CHECK(ended == 2);
    CHECK(calls_waiting(me, 1) == 0);
    others.join();
  });
}

TEST_CASE("elsewhere: a future started by another thread") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto done = weft::make_intrusive<weft::event>();
    std::atomic<int> right{0};
    std::thread other([&, p = me.peer(1)] {
      for (int i = 0; i < 50; ++i) {
        if (p.start<&add>(i, 1)(asio::use_future).get() == i + 1) ++right;
        p.post<&add>(i, 1);
      }
      done->set();
    });
    co_await weft::event::async_wait(done, asio::use_awaitable);
    other.join();
    CHECK(right == 50);
  });
}

}  // namespace elsewhere
