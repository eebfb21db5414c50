// SPDX-License-Identifier: BSL-1.0
// What a program may get wrong about its simulated world, and what it is told then.
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/published.hpp>
#include <weft/rref/rref.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <sim/calls.hpp>
#include <string>
#include <thread>

namespace sim_misused {

using namespace std::chrono_literals;

std::string refusal(weft::errc code, const std::function<void()>& what) {
  try {
    what();
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == code);
    return e.what();
  }
  return "none";
}
bool has(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

TEST_CASE("misused worlds: a rank that there is none of, or not yet, is refused by name") {
  weft::sim::world w(1, {});
  weft::testing::witness sees(w);
  CHECK(has(refusal(weft::errc::unknown_peer, [&] { w.crash(1); }), "not been started"));
  w.start([](weft::worker& me) { return weft::testing::sleep_for(me, 1s); });
  CHECK_FALSE(w.run(10ms));
  for (const std::function<void()>& what : std::initializer_list<std::function<void()>>{
           [&] { w.crash(9); }, [&] { w.pause(9, 1s); }, [&] { static_cast<void>(w.ended(9)); },
           [&] { static_cast<void>(w.failed(3)); }, [&] { static_cast<void>(w.crashed(9)); },
           [&] { static_cast<void>(w.crashed_at(9)); }, [&] { static_cast<void>(w.paused(9)); },
           [&] { static_cast<void>(w.worker_at(9)); }}) {
    CHECK(has(refusal(weft::errc::unknown_peer, what), "the world has 3 workers"));
  }
  CHECK(has(refusal(weft::errc::unknown_peer, [&] { w.wires().cut(9, 1); }), "from worker 9"));
  CHECK(has(refusal(weft::errc::unknown_peer, [&] { w.wires().heal(1, 3); }), "to worker 3"));
  w.crash(1);
  CHECK(has(refusal(weft::errc::peer_died, [&] { static_cast<void>(w.worker_at(1)); }),
            "has ended or crashed"));
  CHECK(has(refusal(weft::errc::unknown_peer, [&] { w.restart(9); }), "the world has 3 workers"));
  CHECK(has(refusal(weft::errc::invalid_argument, [&] { w.restart(0); }), "has not crashed"));
  CHECK(w.run(1min));
  CHECK(w.ended(0) == weft::errc::peer_died);
}

TEST_CASE(
    "misused worlds: one is started once, with workers, and runs on the thread of its start") {
  const auto main_ = [](weft::worker& me) { return weft::testing::sleep_for(me, 1s); };
  weft::sim::world empty(1, {.workers = 0});
  CHECK(has(refusal(weft::errc::invalid_argument, [&] { empty.start(main_); }), "needs a worker"));
  weft::sim::world w(1, {});
  weft::testing::witness sees(w);
  w.start(main_);
  CHECK(has(refusal(weft::errc::invalid_argument, [&] { w.start(main_); }), "started before"));
  std::string told;
  std::thread other(
      [&] { told = refusal(weft::errc::invalid_argument, [&] { static_cast<void>(w.run(1s)); }); });
  other.join();
  CHECK(has(told, "the thread that started it"));
  CHECK(w.run(1min));
  for (std::uint32_t r = 0; r < 3; ++r) CHECK_FALSE(w.ended(r));
}

struct box {
  int value = 3;
};

TEST_CASE("misused worlds: who asks for a service that the world was made without hears which") {
  weft::sim::world w(1, {});
  weft::testing::witness sees(w);
  std::string of_make, of_share, of_lookup;
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    of_make =
        refusal(weft::errc::invalid_argument, [&] { static_cast<void>(me.peer(1).make<box>()); });
    of_share = refusal(weft::errc::invalid_argument, [&] { static_cast<void>(me.share(box())); });
    auto looks = me.peer(1).lookup<int>("box");
    try {
      static_cast<void>(co_await std::move(looks));
    } catch (const weft::rpc_error& e) {
      if (e.error() == weft::errc::invalid_argument) of_lookup = e.what();
    }
  });
  CHECK(w.run(1min));
  CHECK(has(of_make, "made without the service of references"));
  CHECK(has(of_lookup, "made without the service of references"));
  CHECK(has(of_share, "sim::services()"));
  CHECK_FALSE(w.ended(0));
}

TEST_CASE("misused worlds: in how many steps a world runs makes no difference to what happens") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    std::uint64_t hash = 0;
    std::string story;
    for (const auto step : {60'000ms, 1000ms, 100ms, 333ms, 7ms}) {
      CAPTURE(step.count());
      weft::sim::settings how;
      how.keeps_story = true;
      how.worker.on_loss = weft::loss_policy::go_on();
      how.worker.lost_after = 1s;
      how.worker.waiting = 0s;
      how.wires.jitter = 2ms;
      how.mean_between_faults = 30ms;
      how.faults_end = 1s;
      how.resets = how.cuts = how.pauses = how.crashes = true;
      how.longest_cut = how.longest_pause = 100ms;
      weft::sim::world w(seed, how);
      weft::testing::witness sees(w);
      w.start([](weft::worker& me) -> asio::awaitable<void> {
        for (int i = 0; i < 20; ++i) {
          co_await weft::testing::sleep_for(me, 20ms);
          try {
            me.peer((me.rank() + 1) % 3).post<&weft::testing::at_once>(std::uint64_t{0});
          } catch (const weft::rpc_error&) {
          }
        }
      });
      for (int i = 0; i < 100'000 && !w.run(step); ++i) {
      }
      CHECK(w.over());
      if (hash == 0) {
        hash = w.hash();
        story = w.story();
      }
      CHECK(w.hash() == hash);
      CHECK(w.story() == story);
    }
  }
}

}  // namespace sim_misused
