// SPDX-License-Identifier: BSL-1.0
// Worlds in which a process begins anew in the place of one that crashed: the others know the one
// before, and nothing that was meant for that one reaches it.
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstdint>
#include <memory>
#include <sim/calls.hpp>
#include <sim/goes_on.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sim_restarted {

using namespace std::chrono_literals;
using weft::testing::rounds;
using weft::testing::that_goes_on;
using weft::testing::with_references;

struct box {
  int value = 0;
  std::shared_ptr<int> life;
  [[nodiscard]] int get() const { return value; }
};

/// Of one world.
struct {
  weft::id128 first;  // the process before
  int by_first = 0, by_another = 0;
  int holds = 0;
  bool is_refused = false;
} seen;

void serve(weft::worker& me) {
  const bool known = me.members().members[me.rank()].incarnation == seen.first;
  ++(known ? seen.by_first : seen.by_another);
}
weft::rref<box> held;  // by worker 1
void hold(weft::rref<box> r) {
  held = std::move(r);
  ++seen.holds;
}

/// Of workers 0 and 1, until the world's time is that.
asio::awaitable<void> use(weft::sim::world& w, weft::worker& me) {
  weft::rref<box> mine = me.peer(2).make<box>(1);
  if (me.rank() == 0) co_await me.peer(1).call<&hold>(mine);
  CHECK(co_await mine.call<&box::get>() == 1);
  seen.first = me.peer(2).incarnation();
  // bounded: by the world's time
  while (w.now() - weft::sim::timeline::beginning < 20s) {
    co_await me.peer(2).call<&serve>(weft::within(400ms), weft::as_expected);
    try {
      me.peer(2).post<&serve>();
      if (w.decide().pick(8) == 0) mine = me.peer(2).make<box>(1);
    } catch (const weft::rpc_error&) {
    }
    const auto got = co_await mine.call<&box::get>(weft::within(400ms), weft::as_expected);
    CHECK((!got || *got == 1));
    co_await weft::testing::sleep_for(me, 40ms);
  }
  CHECK(me.peer(2).incarnation() == seen.first);
  if (me.rank() == 1) held = {};
}

/// Of the process that began anew, whose objects have the numbers of those before.
asio::awaitable<void> begin_anew(weft::worker& me, int rounds) {
  const auto life = std::make_shared<int>(0);
  std::vector<weft::rref<box>> own;
  for (int i = 0; i < 8; ++i) own.push_back(me.share(box{100, life}));
  for (int i = 0; i < rounds; ++i) {
    const auto got = co_await me.peer(1).call<&serve>(weft::within(400ms), weft::as_expected);
    if (!got && got.error() == weft::errc::wrong_peer) seen.is_refused = true;
    CHECK_FALSE(got);
    try {
      me.peer(1).post<&hold>(own[0]);
    } catch (const weft::rpc_error& e) {
      CHECK(e.error().ran() == weft::call_progress::not_sent);
    }
    co_await weft::testing::sleep_for(me, 100ms);
  }
  CHECK(life.use_count() == 9);  // nobody else counted them down
  for (const auto& r : own) CHECK(co_await r.call<&box::get>() == 100);
  // The loss of rank 0 ends the run.
  CHECK_FALSE(co_await me.peer(0).call<&serve>(weft::as_expected));
  co_await weft::testing::sleep_for(me, 1s);
  CHECK_MESSAGE(false, "it goes on without rank 0");
}

/// Returns whether the others used the process before, and met the one that began anew.
bool play(std::uint64_t seed, bool whole_frames) {
  CAPTURE(seed);
  seen = {};
  weft::sim::settings how = that_goes_on();
  how.whole_frames = whole_frames;
  how.wires.jitter = 2ms;
  how.clock_ppm = 10'000;
  how.slow_handlers_per_1024 = 100;
  weft::sim::world w(seed, how, with_references());
  int begun = 0, ended = 0;
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 2) {
      if (++begun == 1) co_await weft::testing::sleep_for(me, 30s);
      co_await begin_anew(me, static_cast<int>(w.decide().pick(20)));
    }
    co_await use(w, me);
    ++ended;
  });
  const auto part = [&w](weft::duration most) {
    return weft::sim::part_of(most, w.decide().pick(1024), 1024);
  };
  REQUIRE_FALSE(w.run(100ms + part(2s)));
  w.crash(2, seed % 4 < 2);
  REQUIRE_FALSE(w.run(part(2s)));  // the others may not have noticed yet
  const int before = seen.by_first;
  w.restart(2);
  CHECK_FALSE(w.crashed(2));
  CHECK(w.run(2min));
  INFO(w.waits());
  CHECK(begun == 2);
  CHECK(ended == 2);
  CHECK(seen.by_first == before);
  CHECK(seen.by_another == 0);
  CHECK(seen.holds == 1);
  for (std::uint32_t r = 0; r < 2; ++r) CHECK_FALSE(w.ended(r));
  CHECK(w.ended(2) == weft::errc::peer_died);
  CHECK(w.ended(2).message().find("the process is not the one that rank 2") != std::string::npos);
  return before > 0 && seen.is_refused;
}

TEST_CASE("restarted worlds: who begins anew in another's place gets nothing that was that one's") {
  for (const bool whole_frames : {true, false}) {
    int told = 0;
    for (std::uint64_t seed = 0; seed < rounds(3, 40); ++seed)
      told += play(seed, whole_frames) ? 1 : 0;
    CHECK(told > rounds(0, 10));
  }
}

}  // namespace sim_restarted
