// SPDX-License-Identifier: BSL-1.0
// A busy thread is not a dead process; a silent one is.
#include <weft/rpc/peer.hpp>

#include <asio/steady_timer.hpp>

#include <atomic>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <rpc/cluster.hpp>
#include <rpc/raw_peer.hpp>
#include <stdexcept>
#include <string>
#include <thread>

namespace signs_of_life {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::errc;
using weft::frame_kind;
using weft::options;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }
asio::awaitable<int> add_later(int a, int b) { co_return a + b; }
asio::awaitable<void> never_ends() { co_await for_ever(); }
/// Keeps this thread, as a computation does, for several times every limit of `impatient`.
void compute() { std::this_thread::sleep_for(1200ms); }
asio::awaitable<int> compute_here() {
  compute();
  co_return 1;
}

options impatient(unsigned io_threads) {
  options o = with_io_threads(io_threads);
  o.handshake_deadline = 300ms;
  o.lost_after = 500ms;
  o.stall_limit = 500ms;
  return o;
}

template <class Main>
void all_well(std::uint32_t size, Main main_) {
  for (const auto [how, io_threads] : ways(2)) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_well(size, how, impatient(io_threads), main_);
  }
}

TEST_CASE("life: a main that computes before its first co_await is met when it is done") {
  for (const std::uint32_t busy : {0u, 2u}) {
    CAPTURE(busy);
    all_well(3, [busy](worker& me) -> asio::awaitable<void> {
      if (me.rank() == busy) compute();
      for (std::uint32_t r = 0; r < 3; ++r) {
        CHECK(co_await me.peer(r).call<&add_later>(1, 2) == 3);
      }
    });
  }
}

TEST_CASE("life: a worker that computes in a coroutine for long is not lost, nor are its callers" *
          doctest::test_suite("all")) {
  all_well(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 2) co_return;
    // The second call waits behind the first: its first contact falls into the computation.
    auto first = me.peer(2).start<&compute_here>();
    CHECK(co_await me.peer(2).call<&add_later>(1, 2) == 3);
    CHECK(co_await std::move(first) == 1);
    // A small call within its deadline is an answer about the deadline, not about the link.
    auto again = me.peer(2).start<&compute_here>();
    const auto late =
        co_await failure_of(me.peer(2).call<&add_later>(1, 2, within(100ms), as_expected));
    if (late) CHECK(late == errc::timed_out);
    CHECK(co_await std::move(again) == 1);
    CHECK(co_await me.peer(2).call<&add>(1, 2) == 3);
  });
}

asio::awaitable<std::size_t> length(std::string s) { co_return s.size(); }

TEST_CASE("life: what does not fit the kernel waits for a busy worker, and arrives") {
  // Longer than the stall limit, but its threads say that it lives.
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    run_well(2, over::tcp, impatient(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const auto p = me.peer(1);
      CHECK(co_await p.call<&add>(1, 2) == 3);
      auto busy = p.start<&compute_here>();
      auto large = p.start<&length>(std::string(12'000'000, 'x'));
      CHECK(co_await std::move(large) == 12'000'000);
      CHECK(co_await std::move(busy) == 1);
    });
  }
}

TEST_CASE("life: quiet links ping, and stay") {
  for (const unsigned io_threads : io_ways()) {
    run_well(2, over::tcp, impatient(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
      const auto before = me.stats().frames_received;
      asio::steady_timer t(weft::detail::context_of(me), 1400ms);
      co_await t.async_wait(asio::use_awaitable);
      CHECK(me.stats().frames_received >= before + 3);
      CHECK(co_await me.peer(1).call<&add>(1, 2) == 3);
    });
  }
}

/// Member 2 of a run is played by `other`; worker 1's call to it ends as returned. Its thread does
/// `meanwhile` before it waits.
weft::error call_to(const std::function<void(raw_peer&)>& other, options o, std::size_t bytes,
                    const std::function<asio::awaitable<void>(worker&)>& meanwhile = {}) {
  raw_listener there;
  cluster workers(2, over::tcp, o, 1);
  workers.members().members.change(2).addresses = {{"tcp", there.endpoint()}};
  std::atomic<bool> over = false;
  std::thread playing([&, all = workers.members()] {
    auto peer = there.accept();
    CHECK(peer.answer(all, 2));
    other(peer);
    for (bounded_wait until("the call has ended"); until.not_yet(over);) {
      std::this_thread::sleep_for(10ms);
    }
  });
  weft::error out;
  const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) co_await never_ends();
    auto sent = me.peer(2).start<&length>(std::string(bytes, 'x'), within(3s));
    if (meanwhile) co_await meanwhile(me);
    out = co_await failure_of(std::move(sent));
    over = true;
    CHECK(co_await me.peer(0).call<&add>(1, 2) == 3);
    throw std::runtime_error("the test is over");
  });
  playing.join();
  CHECK(ends[1] == errc::worker_failed);
  return out;
}

weft::frame ping(std::uint64_t busy) {
  weft::frame_header h;
  h.kind = frame_kind::ping;
  h.call = busy;
  return weft::message().finish(h);
}

TEST_CASE("life: a peer from which nothing comes is lost, unless that was switched off") {
  for (const unsigned io_threads : io_ways()) {
    const auto silent = call_to([](raw_peer&) {}, impatient(io_threads), 10);
    INFO(silent.message());
    CHECK(silent == errc::peer_died);
    CHECK(silent.ran() == call_progress::maybe_executed);
    CHECK(silent.message().find("worker2") != std::string::npos);
    CHECK(silent.message().find("nothing came from it") != std::string::npos);
  }
  options patient = impatient(1);
  patient.lost_after = 0s;
  CHECK(call_to([](raw_peer&) {}, patient, 10) == errc::timed_out);
}

TEST_CASE("life: a worker that goes on computing notices that nothing comes from a peer") {
  bool noticed = false;
  const auto computes = [&](worker& me) -> asio::awaitable<void> {
    const weft::link& to = me.link_to(2);
    for (bounded_wait until("the peer is lost");
         until.not_yet(to.current_state() == weft::link::state::down);) {
      std::this_thread::yield();
    }
    noticed = true;
    co_return;
  };
  options o = impatient(by_default);
  o.lost_after = 1s;  // the others are not silent, whatever else the machine does
  const auto silent = call_to([](raw_peer&) {}, o, 10, computes);
  INFO(silent.message());
  CHECK(silent == errc::peer_died);
  CHECK(noticed);
}

TEST_CASE("life: what a slow peer has begun to take goes on leaving while its worker computes") {
  constexpr std::size_t bytes = 16'000'000;
  std::atomic<std::size_t> taken{64'000};  // with what it may have read with the handshake
  std::atomic<bool> busy{false};
  const auto slow = [&](raw_peer& p) {
    for (bounded_wait until("all is taken"); until.not_yet(taken >= bytes);) {
      taken += p.read_piece();
      if (!busy) std::this_thread::sleep_for(1ms);
    }
    p.finish_sending();
  };
  const auto computes = [&](worker& me) -> asio::awaitable<void> {
    asio::steady_timer some(weft::detail::context_of(me));
    for (bounded_wait until("it takes some"); until.not_yet(taken > 500'000);) {
      some.expires_after(1ms);
      co_await some.async_wait(asio::use_awaitable);
    }
    busy = true;
    for (bounded_wait until("all is taken"); until.not_yet(taken >= bytes);) {
      std::this_thread::yield();
    }
  };
  options o = impatient(by_default);
  o.lost_after = {};  // no sign of life brings what lies unsent
  o.stall_limit = 1min;
  CHECK(call_to(slow, o, bytes, computes) == errc::peer_died);
}

TEST_CASE(
    "life: a peer that takes nothing of what is written is lost, unless it says that it is busy" *
    doctest::test_suite("all")) {
  auto pings = [](std::uint64_t busy) {
    return [busy](raw_peer& p) {
      for (int i = 0; i < 30; ++i) {
        if (!p.send(ping(busy))) return;
        std::this_thread::sleep_for(50ms);
      }
    };
  };
  options o = impatient(1);
  o.lost_after = 2s;  // a ping that is late is not what this is about
  const auto stuck = call_to(pings(0), o, 60'000'000);
  INFO(stuck.message());
  CHECK(stuck == errc::peer_died);
  CHECK(stuck.message().find("has read nothing") != std::string::npos);
  const auto busy = call_to(pings(1), o, 60'000'000);
  INFO(busy.message());
  CHECK(busy == errc::timed_out);
}

}  // namespace signs_of_life
