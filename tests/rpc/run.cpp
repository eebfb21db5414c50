// SPDX-License-Identifier: BSL-1.0
// How a run ends: well, by a main that throws, by a lost worker.
#include <weft/rpc/peer.hpp>

#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>

#include <atomic>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <rpc/cluster.hpp>
#include <rpc/said.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace whole_runs {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }
std::atomic<int> waiting{0};
asio::awaitable<void> wait_for_ever() {
  ++waiting;
  co_await for_ever();
}

TEST_CASE("run: ends well when every main has returned, and serves until then") {
  for (const std::uint32_t size : {1u, 2u, 5u}) {
    CAPTURE(size);
    everywhere(size, [](worker& me) -> asio::awaitable<void> {
      // The last worker is the last to finish; the others must still answer.
      if (me.rank() + 1 != me.world_size()) co_return;
      for (int i = 0; i < 20; ++i) {
        for (std::uint32_t r = 0; r < me.world_size(); ++r) {
          CHECK(co_await me.peer(r).call<&add>(i, 1) == i + 1);
        }
      }
    });
  }
}

TEST_CASE("run: rank 0 says whose mains it waits for, again and again, until all returned") {
  weft::options o = with_io_threads(1);
  o.waiting = o.still_waiting = 1ms;
  const said here;
  run_well(3, over::tcp, o, [&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 2) co_return;
    CHECK(co_await eventually([&] { return here.times("; it waits for 'worker2'\n") >= 2; }));
  });
  INFO(here.text());
  CHECK(here.times("worker1: its main") == 0);  // one word is enough
  CHECK(here.times("worker2: its main") == 0);
  CHECK(here.times("it waits for \n") == 0);  // nobody
}

/// Keeps a run from its end for longer than any `waiting` that the main on this worker has begun:
/// their timers are on one context, where the one that ends first comes first.
asio::awaitable<void> linger(worker& me) {
  asio::steady_timer rest(weft::detail::context_of(me), 50ms);
  co_await rest.async_wait(asio::use_awaitable);
}

TEST_CASE("run: nobody says that it waits if that is switched off, or if no other main runs") {
  const said here;
  weft::options o = with_io_threads(0);
  o.waiting = o.still_waiting = 1ms;
  run_well(1, over::inproc, o, [](worker& me) -> asio::awaitable<void> {
    me.peer(0).post<&linger>();  // the run goes on behind the last main
    co_return;
  });
  CHECK(here.text() == "");
  o.waiting = 0s;
  run_well(2, over::inproc, o, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) co_await me.peer(0).call<&linger>();  // whose main has returned
  });
  CHECK(here.text() == "");
  o.waiting = 1ms;
  run_well(2, over::inproc, o, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) co_await me.peer(0).call<&linger>();
    if (me.rank() == 1) me.peer(0).post<&linger>();
  });
  INFO(here.text());
  CHECK(here.times("worker0: its main has returned, and it serves until all have; it waits for "
                   "'worker1'\n") > 0);  // so the two above could have said it
  CHECK(here.times("it waits for \n") == 0);
}

TEST_CASE("run: mains that do nothing") {
  everywhere(3, [](worker&) -> asio::awaitable<void> { co_return; });
}

/// Everybody waits in a call to everybody; `who` throws. Each waiting call must end.
void check_failing_main(std::uint32_t who, over how, unsigned io_threads) {
  CAPTURE(who);
  CAPTURE(name_of(how));
  CAPTURE(io_threads);
  constexpr std::uint32_t size = 4;
  waiting = 0;
  std::atomic<int> ended{0};
  std::atomic<int> died{0};
  cluster workers(size, how, with_io_threads(io_threads));
  const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
    for (std::uint32_t r = 0; r < size; ++r) co_await me.peer(r).call<&add>(1, 1);
    if (me.rank() == who) {
      for (bounded_wait until("the others wait"); until.not_yet(waiting >= 3);) {
        co_await asio::post(asio::use_awaitable);
      }
      throw std::runtime_error("the data are gone");
    }
    try {
      co_await me.peer(who).call<&wait_for_ever>(within(1h));
    } catch (const weft::rpc_error& e) {
      ++ended;
      if (e.error() == errc::peer_died) ++died;
      CHECK(std::string(e.what()).find("worker" + std::to_string(who)) != std::string::npos);
      throw;
    }
  });
  CHECK(ended == 3);
  CHECK(died == 3);
  for (std::uint32_t r = 0; r < size; ++r) {
    INFO("rank ", r, ": ", ends[r].message());
    CHECK(ends[r] == (r == who ? errc::worker_failed : errc::peer_died));
    CHECK(ends[r].message().find("worker" + std::to_string(who)) != std::string::npos);
    CHECK(ends[r].message().find("the data are gone") != std::string::npos);
  }
}

TEST_CASE("run: one main throws, every other worker's waits get peer_died, and all name it") {
  for (const auto [how, io_threads] : ways()) {
    for (const std::uint32_t who : {0u, 1u, 3u}) check_failing_main(who, how, io_threads);
  }
}

TEST_CASE("run: a main that throws something else than a std::exception") {
  cluster workers(2, over::tcp, with_io_threads(1));
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) throw 42;
    co_return;
  });
  CHECK(ends[0] == errc::peer_died);
  CHECK(ends[1] == errc::worker_failed);
  CHECK(ends[1].message().find("not a std::exception") != std::string::npos);
}

TEST_CASE("run: a main that waits for ever is cancelled when the run fails") {
  everywhere(1, [](worker&) -> asio::awaitable<void> { co_return; });
  std::atomic<int> cancelled{0};
  cluster workers(3, over::tcp, with_io_threads(1));
  const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) throw std::runtime_error("over");
    try {
      co_await for_ever();
    } catch (const std::system_error&) {
      ++cancelled;
      throw;
    }
  });
  CHECK(cancelled == 2);
  for (const auto& e : ends) CHECK(e);
}

TEST_CASE("run: two mains that throw at once, everybody ends and names one of them") {
  for (int round = 0; round < 5; ++round) {
    cluster workers(4, over::unix_socket, with_io_threads(1));
    const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
      co_await me.peer(0).call<&add>(1, 1);
      if (me.rank() == 1 || me.rank() == 2) throw std::runtime_error("both");
      co_await me.peer(1).call<&wait_for_ever>(within(1h));
    });
    for (const auto& e : ends) {
      CHECK(e);
      CHECK(e.message().find("both") != std::string::npos);
    }
  }
}

TEST_CASE("run: shutdown ends it as if main had failed") {
  cluster workers(3, over::tcp, with_io_threads(0));
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 2) me.shutdown(weft::error(errc::resource_exhausted, "no disk left"));
    co_return;
  });
  for (const auto& e : ends) CHECK(e.message().find("no disk left") != std::string::npos);
}

std::atomic<int> served{0};
asio::awaitable<void> slow_post() {
  co_await asio::post(asio::use_awaitable);
  ++served;
}

TEST_CASE("run: what was posted before the mains returned still arrives") {
  for (const unsigned io_threads : io_ways()) {
    served = 0;
    run_well(2, over::tcp, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) co_return;
      for (int i = 0; i < 100; ++i) me.peer(0).post<&slow_post>();
    });
    CHECK(served == 100);
  }
}

TEST_CASE("run: coroutines still running at the end are dropped without a trace") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    me.spawn(wait_for_ever()).detach();
    me.peer(1 - me.rank()).start<&wait_for_ever>(within(1h)).detach();
    co_await me.peer(1 - me.rank()).call<&add>(1, 1);
  });
}

TEST_CASE("run: workers that never ran can be destroyed") {
  cluster idle(2, over::tcp, with_io_threads(1));
  CHECK(idle.members().size() == 2);
}

}  // namespace whole_runs
