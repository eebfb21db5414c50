// SPDX-License-Identifier: BSL-1.0
// Worlds in which calls go on through a worker to another one's object: whose timer rings first, what
// the run's end waits for, and how many may wait to go on.
#include <weft/engine/services/rref_service.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstdint>
#include <sim/calls.hpp>
#include <sim/goes_on.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sim_forwarded {

using namespace std::chrono_literals;
using weft::call_progress;
using weft::errc;
using weft::rref;
using weft::worker;
using weft::testing::rounds;
using weft::testing::sleep_for;
using weft::testing::with_references;

struct box {
  int asked = 0;
  asio::awaitable<int> ask() { co_return ++asked; }
  asio::awaitable<void> never(worker& me) { co_await sleep_for(me, 1h); }
};
rref<box> made_on(worker& me, std::uint32_t rank) { return me.peer(rank).make<box>(); }

weft::immediate<void> nothing() { return {}; }

TEST_CASE(
    "forwarded: a call is timed out, whether its timer rings first at its caller or in between") {
  int in_between = 0;
  for (std::uint64_t seed = 0; seed < rounds(6, 60); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how;
    how.clock_ppm = 10'000;
    weft::sim::world w(seed, how, with_references());
    bool asked = false;
    w.start([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const rref<box> r = me.peer(1).remote<&made_on>(2u);
      co_await r.call<&box::ask>();
      const auto got = co_await r.call<&box::never>(weft::within(2s), weft::as_expected);
      REQUIRE_FALSE(got);
      INFO(got.error().message());
      CHECK(got.error() == errc::timed_out);
      CHECK(got.error().ran() == call_progress::maybe_executed);
      in_between += got.error().message().find("forwarded call") != std::string::npos ? 1 : 0;
      asked = true;
    });
    CHECK(w.run(5min));
    CHECK(asked);
  }
  CHECK(in_between > 0);
  CHECK(in_between < 60);
}

int ran = 0;  // of one world
asio::awaitable<void> count(box&) {
  ++ran;
  co_return;
}

TEST_CASE("forwarded: the end of a run waits for posts that have not gone on") {
  for (std::uint64_t seed = 0; seed < rounds(5, 40); ++seed) {
    CAPTURE(seed);
    ran = 0;
    weft::sim::settings how;
    how.wires.jitter = 2ms;
    how.worker.window_bytes = 64 * 1024;  // of 1,024 for each
    const int posts = 200 + 20 * static_cast<int>(seed);
    weft::sim::world w(seed, how, with_references());
    w.start([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const rref<box> r = me.peer(1).remote<&made_on>(2u);
      for (int i = 0; i < posts; ++i) {
        co_await me.peer(1).room();
        r.post<&count>();
      }
    });
    CHECK(w.run(5min));
    INFO(w.waits());
    for (std::uint32_t rank = 0; rank < 3; ++rank) CHECK_FALSE(w.ended(rank));
    CHECK(ran == posts);
  }
}

TEST_CASE("forwarded: so many may wait to go on; what does not begin gives its credit back" *
          doctest::test_suite("all")) {
  constexpr int most = 65'536, more = 40;
  ran = 0;
  weft::sim::settings how;
  how.worker.window_bytes = 64 * 1024;
  how.worker.lost_after = 1min;
  how.worker.waiting = 0s;
  weft::sim::world w(1, how, with_references());
  const weft::testing::witness sees(w);
  std::uint64_t refused = 0;
  bool looked = false;
  w.start([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return co_await sleep_for(me, 40s);
    const rref<box> r = me.peer(1).remote<&made_on>(2u);
    co_await r.call<&box::ask>();
    w.pause(2, 5s);
    // The first fill what the object's worker has room for.
    for (int i = 0; i < most + 64 + more; ++i) {
      r.post<&count>();
      if (i % 32 == 31) co_await me.peer(1).call<&nothing>();
    }
    const auto got = co_await r.call<&box::ask>(weft::within(1s), weft::as_expected);
    REQUIRE_FALSE(got);
    CHECK(got.error() == errc::resource_exhausted);
    CHECK(got.error().ran() == call_progress::not_executed);
    CHECK(got.error().message().find("wait to be forwarded") != std::string::npos);
    refused = w.worker_at(1).stats().posts_failed;
    co_await sleep_for(me, 20s);
    for (const std::uint32_t far : {0u, 2u}) {  // else nothing is asked of them
      CHECK(w.worker_at(1).link_to(far).current_state() == weft::link::state::up);
      CHECK(w.worker_at(far).link_to(1).current_state() == weft::link::state::up);
    }
    for (std::uint32_t of = 0; of < 3; ++of) CHECK(sees.left_over(w.worker_at(of)) == "");
    looked = true;
  });
  CHECK(w.run(5min));
  CHECK(looked);
  CHECK(refused > 0);
  CHECK(ran + static_cast<int>(refused) == most + 64 + more);
}

}  // namespace sim_forwarded
