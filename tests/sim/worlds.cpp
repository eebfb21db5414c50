// SPDX-License-Identifier: BSL-1.0
// Whole runs in virtual time, decided by seeds.
#include <weft/rpc/wait.hpp>

#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <core/run_all.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <sim/play.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sim_worlds {

using namespace std::chrono_literals;
using weft::testing::play;
using weft::testing::played;
using weft::testing::profile;
using weft::testing::program;
using weft::testing::rounds;

void check_seeds(std::uint64_t from, std::uint64_t all, profile how, program what) {
  const std::uint64_t count = rounds(all / 10, all);
  std::uint64_t done = 0, faulty = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    const played p = play({.seed = seed, .how = how, .what = what});
    INFO("./dev sim --seed ", seed, " --profile ", std::string(name_of(how)), " --program ",
         std::string(name_of(what)));
    for (const std::string& b : p.broken) FAIL_CHECK(b);
    for (const auto& [of_what, n] : p.counted) done += n;
    faulty += p.faulty ? 1 : 0;
  }
  CHECK(done > count);
  if (how == profile::calm) CHECK(faulty == 0);
  if (how == profile::brutal) CHECK(faulty > count / 4);
}

TEST_CASE("worlds: calls have one true outcome on every schedule") {
  check_seeds(0, 400, profile::calm, program::calls);
  check_seeds(0, 400, profile::brutal, program::calls);
}

TEST_CASE("worlds: objects live as long as their references, on every schedule") {
  check_seeds(0, 300, profile::calm, program::references);
  check_seeds(0, 300, profile::brutal, program::references);
}

TEST_CASE("worlds: what users leave behind, give up or cannot write harms no other call") {
  check_seeds(0, 200, profile::calm, program::habits);
  check_seeds(0, 200, profile::brutal, program::habits);
  check_seeds(0, 200, profile::calm, program::verbs);
  check_seeds(0, 200, profile::brutal, program::verbs);
}

TEST_CASE("worlds: streams are in order and end, and broadcasts run once, on every schedule") {
  check_seeds(0, 150, profile::calm, program::flows);
  check_seeds(0, 150, profile::brutal, program::flows);
}

namespace crowd {

asio::awaitable<std::uint32_t> rank_of(weft::worker& me) { co_return me.rank(); }
std::uint32_t replies = 0;

/// Each talks to three others.
asio::awaitable<void> three_others(weft::worker& me) {
  for (const std::uint32_t further : {1u, 5u, 20u}) {
    const std::uint32_t to = (me.rank() + further) % me.world_size();
    if (co_await me.peer(to).call<&rank_of>() == to) ++replies;
  }
}

}  // namespace crowd

TEST_CASE("worlds: a worker has links to those that it talks to, and shares the list of all") {
  weft::sim::settings how;
  how.workers = 60;
  weft::sim::world w(1, how);
  crowd::replies = 0;
  w.start(&crowd::three_others);
  const weft::member* const first = w.at(0).worker().members().members.begin().operator->();
  CHECK(w.at(59).worker().members().members.begin().operator->() == first);
  CHECK(w.at(7).worker().peer("worker42").rank() == 42);
  std::size_t most = 0, most_of_first = 0;
  const auto look = [&] {
    for (std::uint32_t r = 0; r < w.size() && w.steps() % 64 == 0; ++r) {
      if (!w.at(r).alive()) continue;
      const auto& links = w.at(r).worker().links();
      std::size_t& all = r == 0 ? most_of_first : most;
      all = std::max(all, static_cast<std::size_t>(std::distance(links.begin(), links.end())));
    }
    return false;
  };
  const bool over = w.run(1min, look);
  INFO(w.waits());
  CHECK(over);
  CHECK(crowd::replies == 180);
  CHECK(most <= 7);  // three that it calls, three that call it, and rank 0
  CHECK(most >= 6);
  CHECK(most_of_first == 59);  // everybody greets it
}

TEST_CASE("worlds: a seed is a world, whether its story is kept, and its record is the same one") {
  const program all[] = {program::calls, program::references, program::habits, program::verbs,
                         program::flows};
  for (std::uint64_t seed = 0; seed < rounds(5, 32); ++seed) {
    const program& what = all[seed % 5];
    CAPTURE(seed);
    CAPTURE(what.name);
    const auto how = seed % 10 < 5 ? profile::calm : profile::brutal;
    const played once = play({.seed = seed, .how = how, .what = what});
    const played again = play({.seed = seed, .how = how, .what = what, .story = true});
    CHECK(once.hash == again.hash);
    CHECK(once.record == again.record);
    CHECK(again.story.size() > 100);
    CHECK(play({.seed = seed, .how = how, .what = what, .record = &once.record}).hash == once.hash);
    CHECK(play({.seed = seed + 1000, .how = how, .what = what}).hash != once.hash);
  }
}

TEST_CASE("worlds: a story is told with what arrives or without, of the same world") {
  weft::sim::settings how;
  how.keeps_story = true;
  std::uint64_t hash = 0;
  for (const bool with : {true, false}) {
    CAPTURE(with);
    how.tells_arrivals = with;
    weft::sim::world w(1, how);
    weft::testing::witness sees(w);
    w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1s); });
    CHECK(w.run(1min));
    CHECK((w.story().find("arrives") != std::string::npos) == with);
    CHECK(w.story().find("its run has ended") != std::string::npos);
    if (!with) CHECK(w.hash() == hash);
    hash = w.hash();
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
  CHECK_FALSE(w.run(std::chrono::hours(rounds(2, 100))));
  CHECK(w.waits().find("worker1, whose main has not returned") != std::string::npos);
}

asio::awaitable<void> waits_for_the_machine(weft::worker& me) {
  asio::steady_timer never(weft::detail::context_of(me), 24h);
  co_await never.async_wait(asio::use_awaitable);
}

TEST_CASE("worlds: a function that waits for something outside of virtual time is named") {
  weft::sim::settings how;
  how.workers = 2;
  weft::sim::world w(1, how);
  w.start([](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) co_await me.peer(1).call<&waits_for_the_machine>(weft::within(24h));
  });
  CHECK_FALSE(w.run(1min));
  const std::string who = w.waits();
  CAPTURE(who);
  CHECK(who.find("worker0, whose main has not returned") != std::string::npos);
  CHECK(who.find("worker1, whose main has returned, and which serves "
                 "sim_worlds::waits_for_the_machine for worker0") != std::string::npos);
}

TEST_CASE("worlds: no more time passes than it is told") {
  weft::sim::world w(1, {});
  weft::testing::witness sees(w);
  w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1min); });
  const weft::time_point begin = w.now();
  for (int i = 1; i <= 5; ++i) {
    CHECK_FALSE(w.run(100ms));
    CHECK(w.now() - begin >= i * 100ms);
    CHECK(w.now() - begin < i * 100ms + 1ms);
  }
  CHECK(w.run(2min));
}

TEST_CASE("worlds: a worker crashes where it stands, and what stands there ends first") {
  weft::sim::world w(1, {});
  weft::testing::witness sees(w);
  bool went_on = false;
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 1) co_return;
    co_await weft::testing::sleep_for(me, 10ms);
    w.crash(1);
    w.crash(1);
    went_on = me.rank() == 1;
    co_await weft::testing::sleep_for(me, 10ms);
    went_on = false;
  });
  CHECK(w.run(1min));
  CHECK(went_on);
  CHECK(w.ended(0) == weft::errc::peer_died);
}

TEST_CASE("worlds: weft::wait, which would wait for ever, throws") {
  weft::sim::world w(1, {.workers = 2});
  weft::testing::witness sees(w);
  w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1s); });
  CHECK_FALSE(w.run(10ms));
  CHECK_THROWS_AS(weft::wait(w.worker_at(0), w.worker_at(0).peer(1).call<&weft::testing::at_once>(
                                                 std::uint64_t{0}, weft::within(100ms))),
                  weft::rpc_error);
  // On another thread, too, though no time passes.
  bool threw = false;
  std::thread other([&] {
    auto call = w.worker_at(0).peer(1).call<&weft::testing::at_once>(std::uint64_t{0});
    try {
      weft::wait(w.worker_at(0), std::move(call), weft::within(100ms));
    } catch (const weft::rpc_error&) {
      threw = true;
    }
  });
  other.join();
  CHECK(threw);
}

TEST_CASE("worlds: what has not been started is not over") {
  weft::sim::world w(1, {.workers = 2});
  CHECK_FALSE(w.run(1s));
  CHECK_FALSE(w.over());
}

std::uint64_t nothing(std::uint64_t x) { return x; }
asio::awaitable<void> goes_on(weft::worker& me) {
  // bounded: by its worker's life
  for (;;) {
    me.peer(me.rank()).post<&nothing>(std::uint64_t{1});
    co_await weft::testing::sleep_for(me, 1ms);
  }
}

TEST_CASE("worlds: at the end of its time the run names who goes on, not who answers") {
  for (const std::uint32_t busy : {1u, 2u}) {
    for (std::uint64_t seed = 0; seed < rounds(1, 10); ++seed) {
      CAPTURE(busy);
      weft::sim::settings how;
      how.wires.delay = 3ms;  // so that a round takes longer than it rests
      how.worker.shutdown_deadline = 3s;
      how.worker.waiting = 0s;
      weft::sim::world w(seed, how);
      weft::testing::witness sees(w);
      w.start([busy](weft::worker& me) -> asio::awaitable<void> {
        if (me.rank() == busy) me.spawn(goes_on(me)).detach();
        co_await weft::testing::sleep_for(me, 100ms);
      });
      CHECK(w.run(1min));
      CHECK(w.ended(0) == weft::errc::peer_died);
      CHECK(w.ended(0).detail().peer == "worker" + std::to_string(busy));
      // Or that it owes itself something, if the last round caught it so.
      INFO(w.ended(0).message());
      CHECK((w.ended(0).message().find("still increasing") != std::string::npos ||
             w.ended(0).message().find("not done by") != std::string::npos));
    }
  }
}

asio::awaitable<void> until_late(weft::worker& me) {
  co_await weft::testing::sleep_for(me, 2900ms);
}
/// Has 3 s to end, and worker 2 owes rank 0 something until shortly before.
struct late_run {
  late_run() {
    w.start([](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 0) me.peer(2).post<&until_late>();
      co_return;
    });
  }
  static weft::sim::settings how() {
    weft::sim::settings s;
    s.worker.shutdown_deadline = 3s;
    s.worker.lost_after = 30s;
    s.worker.waiting = 0s;
    return s;
  }
  weft::sim::world w{1, how()};
  weft::testing::witness sees{w};
};

TEST_CASE(
    "worlds: a run that is done in its last moment ends well, or blames rank 0 that looks late") {
  // It gives up at 3 s, or half a second later; at 3.75 s the others would.
  for (const auto late : {0ms, 150ms, 300ms, 450ms, 540ms, 580ms, 700ms, 740ms}) {
    CAPTURE(late.count());
    late_run run;
    weft::sim::world& w = run.w;
    CHECK_FALSE(w.run(2890ms));
    if (late > 0ms) w.pause(0, 110ms + late);
    CHECK(w.run(1min));
    INFO(w.ended(0).message());
    if (late < 560ms) {
      for (std::uint32_t r = 0; r < 3; ++r) CHECK_FALSE(w.ended(r));
    } else {  // it is itself to blame
      CHECK(w.ended(0) == weft::errc::worker_failed);
      CHECK(w.ended(0).message().find("it was busy itself") != std::string::npos);
    }
  }
}

TEST_CASE("worlds: who is silent is named though others owed something until late") {
  for (const auto late : {0ms, 150ms, 200ms, 300ms, 360ms}) {
    CAPTURE(late.count());
    late_run run;
    weft::sim::world& w = run.w;
    CHECK_FALSE(w.run(2600ms));
    w.pause(1, 20s);
    if (late > 0ms) {  // rank 0, whose first look should be at 3 s
      CHECK_FALSE(w.run(399ms));
      w.pause(0, late);
    }
    CHECK(w.run(1min));
    CHECK(w.ended(0) == weft::errc::peer_died);
    CHECK(w.ended(0).detail().peer == "worker1");
    CHECK(w.ended(0).message().find("did not answer") != std::string::npos);
  }
}

TEST_CASE("worlds: all who are silent are left behind at once; who is silent then ends the run") {
  for (const bool another : {false, true}) {
    CAPTURE(another);
    weft::sim::settings how = late_run::how();
    how.workers = 5;
    how.worker.on_loss = weft::loss_policy::go_on();
    weft::sim::world w(1, how);
    weft::testing::witness sees(w);
    w.start([](weft::worker& me) -> asio::awaitable<void> {
      for (const std::uint32_t r : {1u, 2u}) me.peer(r).post<&until_late>();
      co_return;
    });
    CHECK_FALSE(w.run(1s));
    for (const std::uint32_t r : {1u, 2u}) w.pause(r, 20s);
    CHECK_FALSE(w.run(1999ms));
    if (another) w.pause(3, 20s);
    CHECK_FALSE(w.run(740ms));  // the others would blame rank 0 at 3.75 s
    for (const std::uint32_t r : {0u, 4u}) {
      INFO(w.ended(r).message());
      CHECK(w.ended(r).detail().peer == (another ? "worker3" : ""));
      CHECK(static_cast<bool>(w.ended(r)) == another);
    }
    CHECK(w.run(1min));
    for (const std::uint32_t r : {0u, 4u}) CHECK(static_cast<bool>(w.ended(r)) == another);
    for (const std::uint32_t r : {1u, 2u}) {
      CHECK(w.ended(r).message().find("did not answer") != std::string::npos);
    }
  }
}

std::size_t length(const std::vector<char>& text) { return text.size(); }
int ran;
std::vector<char> back(const std::vector<char>& all) {
  ++ran;
  return all;
}

TEST_CASE("worlds: what lacks memory fails one call, which says so; what is small never lacks it") {
  int lacked = 0;
  for (std::uint64_t seed = 0; seed < rounds(6, 60); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how{.workers = 2};
    if (seed % 2 == 0) how.worker.io_threads = 0;
    how.whole_frames = seed % 3 == 0;
    how.lacks_memory_per_1024 = 512;
    weft::sim::world w(seed, how);
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      for (int i = 0; i < 20; ++i) {
        const int before = ran;
        const auto got = co_await me.peer(1).call<&back>(std::vector<char>(5000, 'x'),
                                                         weft::within(10s), weft::as_expected);
        CHECK(co_await me.peer(1).call<&length>(std::vector<char>(100)) == 100);
        if (got) {
          CHECK(*got == std::vector<char>(5000, 'x'));
          continue;
        }
        ++lacked;
        CHECK(got.error() == weft::errc::resource_exhausted);
        CHECK(got.error().safe_to_repeat() == (ran == before));
      }
    });
    CHECK(w.run(1min));
    for (std::uint32_t r = 0; r < 2; ++r) CHECK_FALSE(w.ended(r));
  }
  CHECK(lacked > rounds(6, 60));
}

TEST_CASE("worlds: what a program does to a worker happens wholly, also while memory lacks") {
  int crashed = 0;
  for (std::uint64_t seed = 0; seed < rounds(15, 150); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how;
    how.worker.waiting = 0s;
    how.worker.rendezvous_deadline = 3s;
    how.worker.lost_after = 1s;
    how.worker.on_loss = weft::loss_policy::go_on();
    how.wires.jitter = 1ms;
    how.whole_frames = seed % 2 == 0;
    how.slow_handlers_per_1024 = 100;
    how.lacks_memory_per_1024 = 300;
    weft::sim::world w(seed, how);
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      for (int i = 0; i < 20; ++i) {
        for (std::uint32_t to = 0; to < 3; ++to) {
          try {
            me.peer(to).post<&length>(std::vector<char>(3000));
          } catch (const weft::rpc_error&) {
          }
        }
        if (i == 10 && me.rank() == 0) {
          w.pause(2, 20ms);
          w.crash(1, seed % 4 < 2);
          CHECK(w.wires().is_silent(1) == (seed % 4 < 2));
          ++crashed;
        }
        if (i == 19 && me.rank() == 0) {
          CHECK(w.worker_at(0).link_to(2).current_state() != weft::link::state::down);
        }
        co_await weft::testing::sleep_for(me, 2ms);
      }
    });
    CHECK(w.run(2min));
  }
  CHECK(crashed == static_cast<int>(rounds(15, 150)));
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
