// SPDX-License-Identifier: BSL-1.0
// Whole runs in virtual time, decided by seeds.
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <sim/play.hpp>
#include <string>
#include <vector>

namespace sim_worlds {

using namespace std::chrono_literals;
using weft::testing::play;
using weft::testing::played;
using weft::testing::profile;
using weft::testing::program;

void check_seeds(std::uint64_t from, std::uint64_t count, profile how, program what) {
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    const played p = play({.seed = seed, .how = how, .what = what});
    INFO("./dev sim --seed ", seed, " --profile ", name_of(how), " --program ", name_of(what));
    for (const std::string& b : p.broken) FAIL_CHECK(b);
  }
}

TEST_CASE("worlds: calls have one true outcome on every schedule") {
  check_seeds(0, 400, profile::calm, program::calls);
  check_seeds(0, 400, profile::brutal, program::calls);
}

TEST_CASE("worlds: objects live as long as their references, on every schedule") {
  check_seeds(0, 300, profile::calm, program::references);
  check_seeds(0, 300, profile::brutal, program::references);
}

TEST_CASE("worlds: a seed is a world, whether its story is kept, and its record is the same one") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const auto how = seed % 2 == 0 ? profile::calm : profile::brutal;
    const played once = play({.seed = seed, .how = how});
    const played again = play({.seed = seed, .how = how, .story = true});
    CHECK(once.hash == again.hash);
    CHECK(once.record == again.record);
    CHECK(again.story.size() > 100);
    CHECK(play({.seed = seed, .how = how, .record = &once.record}).hash == once.hash);
    CHECK(play({.seed = seed + 1000, .how = how}).hash != once.hash);
  }
}

TEST_CASE("worlds: a record of nothing is a world in which nothing goes wrong") {
  const std::vector<std::uint32_t> nothing;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const played p =
        play({.seed = seed, .how = profile::brutal, .story = true, .record = &nothing});
    CHECK(p.broken.empty());
    CHECK(p.story.find("crash") == std::string::npos);
    CHECK(p.story.find("cut off") == std::string::npos);
  }
}

TEST_CASE("worlds: what waits for something outside of virtual time is named") {
  weft::sim::settings how;
  how.workers = 2;
  // No signs of life, which would go on for ever.
  how.worker.lost_after = 0s;
  how.worker.buffer_cache_idle = 1000h;
  how.worker.rendezvous_deadline = 1s;
  weft::sim::world w(1, how);
  weft::testing::witness sees(w);
  w.start([](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) co_return;
    asio::steady_timer never(weft::detail::context_of(me), 24h);
    co_await never.async_wait(asio::use_awaitable);
  });
  CHECK_FALSE(w.run(100h));
  CHECK(w.waits().find("worker1") != std::string::npos);
}

TEST_CASE("worlds: a crashed worker is a loss for the others, by name") {
  for (const bool in_silence : {false, true}) {
    CAPTURE(in_silence);
    weft::sim::settings how;
    how.worker.lost_after = 1s;
    weft::sim::world w(3, how);
    weft::testing::witness sees(w);
    w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1min); });
    CHECK_FALSE(w.run(100ms));
    w.crash(2, in_silence);
    CHECK(w.run(10s));
    for (const std::uint32_t r : {0u, 1u}) {
      CHECK(w.ended(r) == weft::errc::peer_died);
      CHECK(w.ended(r).detail().peer == "worker2");
    }
  }
}

}  // namespace sim_worlds
