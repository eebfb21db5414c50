// SPDX-License-Identifier: BSL-1.0
// What coroutines of a worker find on it: its clock, its pool, and work that nobody waits for.
#include <weft/core/channel.hpp>
#include <weft/core/gather.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/core/sleep_for.hpp>

#include <atomic>
#include <rpc/cluster.hpp>
#include <rpc/let_go.hpp>
#include <rpc/said.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rpc_background {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::within;
using weft::worker;

/// What background work has seen, per rank.
struct seen {
  std::atomic<bool> scope{false}, may_end{false}, ended{false};
};
seen& of(std::uint32_t rank) {
  static seen all[2];
  return all[rank];
}

asio::awaitable<void> in_background(worker& me) {
  of(me.rank()).scope = weft::this_scope() != nullptr;
  // bounded: the end of the run destroys it
  while (!of(me.rank()).may_end) co_await weft::sleep_for(1ms);
  of(me.rank()).ended = true;
}
asio::awaitable<bool> starts_background(worker& me) {
  me.spawn_detached(in_background(me));
  co_return weft::this_scope() && weft::this_scope()->deadline;
}
asio::awaitable<void> fails_in_background() {
  co_await weft::sleep_for(1ms);
  throw std::runtime_error("nobody waits for this");
}
asio::awaitable<bool> has_ended(worker& me) { co_return of(me.rank()).ended; }

TEST_CASE("background: detached work inherits nothing from the call that starts it") {
  for (const unsigned io_threads : io_ways()) {
    run_well(2, over::tcp, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      of(1).scope = true;
      of(1).may_end = of(1).ended = false;
      const auto until = me.time().now() + 2s;
      CHECK(co_await me.peer(1).call<&starts_background>(within(2s)));
      while (me.time().now() < until + 50ms) co_await weft::sleep_for(10ms);
      of(1).may_end = true;
      for (int i = 0; i < 4000 && !co_await me.peer(1).call<&has_ended>(); ++i) {
        co_await weft::sleep_for(10ms);
      }
      CHECK(of(1).ended);
      CHECK_FALSE(of(1).scope);
    });
  }
}

TEST_CASE("background: what detached work throws is said, unless it was cancelled") {
  const said words;
  run_well(1, over::inproc, with_io_threads(0), [&](worker& me) -> asio::awaitable<void> {
    me.spawn_detached(fails_in_background());
    me.spawn_detached(weft::sleep_for(1h));  // the end of the run destroys it
    for (int i = 0; i < 4000 && words.times("nobody waits for this") == 0; ++i) {
      co_await weft::sleep_for(10ms);
    }
  });
  CHECK(words.times("weft: worker0: detached work failed") == 1);
  CHECK(words.times("nobody waits for this") == 1);
}

asio::awaitable<std::thread::id> on_the_pool() {
  co_return co_await weft::on_pool([] { return std::this_thread::get_id(); });
}

TEST_CASE("background: on_pool leaves the worker's thread, and comes back to it") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto here = std::this_thread::get_id();
    CHECK(co_await on_the_pool() != here);
    CHECK(std::this_thread::get_id() == here);
    std::vector<asio::awaitable<std::size_t>> squares;
    for (std::size_t i = 0; i < 20; ++i) {
      squares.push_back(weft::on_pool([](std::size_t x) { return x * x; }, i));
    }
    const auto all = co_await weft::gather(std::move(squares));
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == i * i);
  });
}

TEST_CASE("background: who waits for room gets it in its turn, or by its deadline not at all") {
  weft::options o = with_io_threads(0);
  o.window_bytes = 4096;
  o.compute_threads = 1;
  let_go = false;
  cluster workers(2, over::unix_socket, o);
  weft::testing::set_windows(workers.members(), o.window_bytes);
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    co_await p.room();  // there is some
    std::vector<weft::future<void>> under_way;
    int refused = 0;  // until nothing has become free for a while
    for (int i = 0; i < 10'000 && refused < 3; ++i) {
      weft::error full;
      try {
        under_way.push_back(p.start<&wait_to_be_let_go>());
        refused = 0;
      } catch (const weft::rpc_error& e) {
        full = e.error();
        ++refused;
      }
      if (full) {
        CHECK(full == errc::too_many_calls);
        co_await weft::sleep_for(100ms);
      }
    }
    REQUIRE(refused == 3);
    weft::error late;
    try {
      co_await p.room(within(30ms));
    } catch (const weft::rpc_error& e) {
      late = e.error();
    }
    CHECK(late == errc::timed_out);
    CHECK(says(late, "worker1"));
    auto waits = me.spawn(p.room());
    CHECK_FALSE(waits.ready());
    let_go = true;
    co_await std::move(waits);
    under_way.push_back(p.start<&wait_to_be_let_go>());
    co_await weft::gather(std::move(under_way));
  });
  for (const auto& end : ends) CHECK_MESSAGE(!end, end.message());
}

std::atomic<int> noted_posts{0};
weft::immediate<void> note_post(const std::string&) {
  ++noted_posts;
  return {};
}
/// As many posts as that, and a wait for room before each that is refused.
asio::awaitable<void> post_many(weft::peer to, int count) {
  const std::string large(1000, 'x');
  int refused = 0;
  for (int posted = 0; posted < count;) {
    REQUIRE(refused < 100'000);  // room that is no room would be asked for without an end
    bool full = false;
    try {
      to.post<&note_post>(large);
      ++posted;
    } catch (const weft::rpc_error& e) {
      REQUIRE(e.error() == errc::too_many_calls);
      full = true;
    }
    refused += full ? 1 : 0;
    if (full) co_await to.room(within(20s));
  }
}

TEST_CASE("background: several that wait for room and then post all get on") {
  weft::options o = with_io_threads(0);
  o.window_bytes = 4096;
  noted_posts = 0;
  cluster workers(2, over::unix_socket, o);
  weft::testing::set_windows(workers.members(), o.window_bytes);
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    std::vector<asio::awaitable<void>> all;
    for (int i = 0; i < 4; ++i) all.push_back(post_many(me.peer(1), 200));
    co_await weft::gather(std::move(all));
  });
  for (const auto& end : ends) CHECK_MESSAGE(!end, end.message());
  CHECK(noted_posts == 800);
}

}  // namespace rpc_background
