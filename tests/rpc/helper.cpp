// SPDX-License-Identifier: BSL-1.0
// A worker that computes for as long as others have not been served: its helper has to do it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <cstdint>
#include <rpc/cluster.hpp>
#include <string>
#include <thread>
#include <vector>

namespace helpers {

using namespace weft::testing;
using weft::worker;

std::atomic<int> in_place{0};
std::atomic<int> on_pool{0};
std::vector<int> in_order;  // of rank 1

weft::immediate<void> serve_in_place() {
  ++in_place;
  return {};
}
void serve_on_pool() { ++on_pool; }
asio::awaitable<void> serve_later(int n) {
  in_order.push_back(n);
  co_return;
}

/// Computes until others have been served so often.
void compute_until(int placed, int pooled) {
  // NOLINTNEXTLINE(bugprone-infinite-loop): other threads raise them
  for (bounded_wait until("others are served meanwhile");
       until.not_yet(in_place >= placed && on_pool >= pooled);) {
    std::this_thread::yield();
  }
}
std::atomic<bool> computes{false};
asio::awaitable<void> compute(int placed, int pooled) {
  computes = true;
  compute_until(placed, pooled);
  co_return;
}

/// More than any socket takes at once.
constexpr std::size_t many_bytes = 8'000'000;
weft::immediate<std::string> much_in_place() { return std::string(many_bytes, 'x'); }
std::string much_on_pool() { return std::string(many_bytes, 'y'); }

void reset() {
  in_place = on_pool = 0;
  computes = false;
  in_order.clear();
}

/// By default, over each transport.
template <class Main>
void with_helpers(std::uint32_t size, const Main& main_) {
  for (const over how : {over::inproc, over::tcp, over::unix_socket}) {
    CAPTURE(name_of(how));
    reset();
    weft::options o = with_io_threads(by_default);
    o.compute_threads = 2;
    o.lost_after = std::chrono::minutes(10);  // no sign of life brings what lies unread or unsent
    run_well(size, how, o, main_);
  }
}

TEST_CASE("helper: immediate and plain functions are served while the worker computes") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    auto busy = p.start<&compute>(20, 20);
    for (int i = 0; i < 20; ++i) {
      co_await p.call<&serve_in_place>();
      co_await p.call<&serve_on_pool>();
    }
    co_await std::move(busy);
  });
}

TEST_CASE("helper: a worker that has never been called before is served, too") {
  with_helpers(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) co_await me.peer(1).call<&compute>(1, 0);
    if (me.rank() != 2) co_return;
    for (bounded_wait until("rank 1 computes"); until.not_yet(computes);) {
      co_await asio::post(asio::use_awaitable);
    }
    co_await me.peer(1).call<&serve_in_place>();
  });
}

TEST_CASE("helper: what a worker sends leaves though it goes on computing") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    co_await p.call<&serve_in_place>();  // they have met
    for (int i = 0; i < 10; ++i) {
      p.post<&serve_in_place>();
      auto started = p.start<&serve_on_pool>();
      compute_until(i + 2, i + 1);
      co_await std::move(started);
    }
  });
}

TEST_CASE("helper: both ends compute, and each waits for the other") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1 - me.rank());
    for (int i = 1; i <= 10; ++i) {
      p.post<&serve_in_place>();
      compute_until(2 * i, 0);
    }
    co_return;
  });
}

TEST_CASE("helper: coroutine functions wait until the worker is back, and begin in order") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    int n = 0;
    for (int round = 1; round <= 10; ++round) {
      auto busy = p.start<&compute>(round, 0);
      for (int i = 0; i < 10; ++i) p.post<&serve_later>(n++);
      co_await p.call<&serve_in_place>();
      for (int i = 0; i < 10; ++i) p.post<&serve_later>(n++);
      co_await std::move(busy);
    }
    co_await p.call<&serve_later>(n++);
    REQUIRE(in_order.size() == static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) CHECK(in_order[static_cast<std::size_t>(i)] == i);
  });
}

TEST_CASE("helper: what no socket takes at once leaves though the worker computes") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    auto busy = p.start<&compute>(100, 0);
    co_await p.call<&serve_in_place>();
    for (int i = 0; i < 3; ++i) {
      CHECK((co_await p.call<&much_in_place>()).size() == many_bytes);
      CHECK((co_await p.call<&much_on_pool>()).size() == many_bytes);
      for (int n = 0; n < 10; ++n) co_await p.call<&serve_on_pool>();
    }
    for (int n = 0; n < 100; ++n) p.post<&serve_in_place>();
    co_await std::move(busy);
  });
}

void take_much(const std::string& what) {
  if (what.size() == many_bytes) ++on_pool;
}
TEST_CASE("helper: what has begun to leave goes on though its worker begins to compute") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    co_await p.call<&serve_in_place>();  // they have met
    for (int i = 1; i <= 4; ++i) {
      auto sent = p.start<&take_much>(std::string(many_bytes, 'z'));
      // The helper has looked, and found it well.
      asio::steady_timer some(co_await asio::this_coro::executor, std::chrono::milliseconds(2 * i));
      co_await some.async_wait(asio::use_awaitable);
      compute_until(0, i);
      co_await std::move(sent);
    }
  });
}

/// Blocks where the worker's thread reads, not on the helper, on which nothing else would be read.
weft::immediate<bool> wait_for_others(const weft::caller& by) {
  const bool here = by.self().on_thread();
  if (here) compute_until(0, on_pool + 1);
  return here;
}
TEST_CASE("helper: a function that blocks the worker's thread where it reads keeps only its link") {
  with_helpers(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) co_return;
    const auto p = me.peer(1);
    if (me.rank() == 2) {
      for (bounded_wait until("the other is served"); until.not_yet(in_place > 0);) {
        co_await p.call<&serve_on_pool>();
      }
      co_return;
    }
    bool blocked = false;
    for (bounded_wait until("a function blocked"); until.not_yet(blocked);) {
      blocked = co_await p.call<&wait_for_others>();
    }
    ++in_place;
  });
}

TEST_CASE("helper: calls that follow each other for ever leave others their turn") {
  with_helpers(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (const std::uint32_t to : {0u, 1u}) {
      bool rang = false;
      asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(5));
      timer.async_wait([&](std::error_code) { rang = true; });
      for (bounded_wait until("a timer rings beside them"); until.not_yet(rang);) {
        co_await me.peer(to).call<&serve_later>(0);
      }
    }
  });
}

}  // namespace helpers
