// SPDX-License-Identifier: BSL-1.0
// Worlds that are led to one moment which random programs seldom meet.
#include <weft/rpc/immediate.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/post.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstdint>
#include <memory>
#include <sim/calls.hpp>
#include <sim/goes_on.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sim_moments {

using namespace std::chrono_literals;
using weft::testing::rounds;
using weft::testing::that_goes_on;
using weft::testing::with_references;

/// In so many handlers of 1024 a request for memory fails.
weft::sim::settings that_lacks_memory(std::uint32_t workers, std::uint32_t per_1024) {
  weft::sim::settings how;
  how.workers = workers;
  how.worker.waiting = 0s;
  how.worker.rendezvous_deadline = 3s;
  how.lacks_memory_per_1024 = per_1024;
  return how;
}

struct box {
  int value = 3;
  [[nodiscard]] int get() const { return value; }
};
box one_more(box& b) { return {b.value + 1}; }

TEST_CASE("moments: a request keeps its object until it arrives, also one to oneself") {
  int used = 0;
  weft::sim::world w(1, {.workers = 2}, with_references());
  w.start([&used](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (std::uint32_t to = 0; to < 2; ++to) {
      weft::rref<box> first = me.peer(to).make<box>();
      weft::rref<box> second = me.peer(to).make<box>();
      CHECK(co_await first.call<&box::get>() == 3);
      auto got = first.start<&box::get>();
      first = {};
      CHECK(co_await std::move(got) == 3);
      const weft::rref<box> more = second.remote<&one_more>();
      second = {};
      CHECK(co_await more.call<&box::get>() == 4);
      ++used;
    }
    co_await weft::testing::sleep_for(me, 1s);
    CHECK(me.use<weft::engine::rref_service>().idle());
  });
  REQUIRE(w.run(1min));
  CHECK(used == 2);
  for (std::uint32_t r = 0; r < 2; ++r) CHECK_FALSE(w.ended(r));
}

weft::rref<box> kept;
void keep(weft::rref<box> r) { kept = std::move(r); }
int look_at_home(weft::rref<box> r) {
  try {
    return r.local()->value;
  } catch (const weft::rpc_error& e) {
    return -e.error().code().value();
  }
}

TEST_CASE(
    "moments: who waits for an object hears that its creator had lost the owner before they met") {
  bool heard = false;
  weft::sim::settings how = that_goes_on();
  // Of the two, the run can go on without the creator only.
  how.worker.role = [](std::uint32_t rank, auto...) { return rank == 1 ? "creator" : "owner"; };
  how.worker.on_loss = weft::loss_policy::go_on_without({"creator"});
  weft::sim::world w(1, how, with_references());
  const auto is_up = [&w](std::uint32_t from, std::uint32_t to) {
    return w.worker_at(from).link_to(to).current_state() == weft::link::state::up;
  };
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) {
      const weft::rref<box> unmade = me.peer(2).make<box>();
      // It takes two ways there and back.
      for (int i = 0; i < 10'000 && !is_up(1, 2); ++i) co_await weft::testing::sleep_for(me, 1us);
      CHECK(is_up(1, 2));
      CHECK_FALSE(is_up(2, 1));  // what would tell it so is lost
      w.wires().cut(1, 2);
      w.wires().cut(2, 1);
      co_await me.peer(0).call<&keep>(unmade);
      // bounded: by the world's time
      while (is_up(1, 2)) co_await weft::testing::sleep_for(me, 100ms);
      w.wires().heal(1, 2);
      w.wires().heal(2, 1);
    }
    if (me.rank() != 0) co_return co_await weft::testing::sleep_for(me, 30s);
    // bounded: by the world's time
    while (!kept) co_await weft::testing::sleep_for(me, 10ms);
    const auto at_home = co_await me.peer(2).call<&look_at_home>(kept);
    CHECK(at_home == -weft::make_error_code(weft::errc::invalid_argument).value());
    co_await weft::testing::sleep_for(me, 20s);
    const auto got = co_await kept.call<&box::get>(weft::within(5s), weft::as_expected);
    heard = !got && got.error() == weft::errc::rref_lost;
    INFO((got ? std::string("got it") : got.error().message()));
    CHECK(heard);
    kept = {};
    co_await weft::testing::sleep_for(me, 5s);
    CHECK(w.worker_at(2).use<weft::engine::rref_service>().idle());
  });
  REQUIRE(w.run(2min));
  CHECK(heard);
  kept = {};
}

weft::rref<box> handed_on, at_home;
void keep_on(weft::rref<box> r) { handed_on = std::move(r); }
void keep_at_home(weft::rref<box> r) { at_home = std::move(r); }
asio::awaitable<void> hand_on(weft::worker& me) { co_await me.peer(0).call<&keep_on>(at_home); }
asio::awaitable<weft::errc> failure_of_use(weft::rref<box> r) {
  const auto got = co_await r.call<&box::get>(weft::within(5s), weft::as_expected);
  co_return got ? weft::errc{} : static_cast<weft::errc>(got.error().code().value());
}

TEST_CASE("moments: an object that never comes has failed, for whoever asks for it later, too") {
  int asked = 0;
  weft::sim::world w(1, that_goes_on(), with_references());
  w.wires().cut(1, 2);
  w.wires().cut(2, 1);
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) {
      co_await me.peer(0).call<&keep>(me.peer(2).make<box>());
      co_return co_await weft::testing::sleep_for(me, 60s);
    }
    if (me.rank() == 2) {
      co_await weft::testing::sleep_for(me, 12s);
      CHECK_THROWS_WITH_AS(static_cast<void>(at_home.local()), doctest::Contains("creator died"),
                           weft::rpc_error);
      CHECK(co_await failure_of_use(at_home) == weft::errc::rref_lost);
      at_home = {};
      ++asked;
      co_return co_await weft::testing::sleep_for(me, 5s);
    }
    // bounded: by the world's time
    while (!kept) co_await weft::testing::sleep_for(me, 10ms);
    co_await me.peer(2).call<&keep_at_home>(kept);
    w.crash(1);
    co_await weft::testing::sleep_for(me, 10s);
    CHECK(co_await failure_of_use(std::exchange(kept, {})) == weft::errc::rref_lost);
    co_await me.peer(2).call<&hand_on>();
    CHECK(co_await failure_of_use(std::exchange(handed_on, {})) == weft::errc::rref_lost);
    ++asked;
    co_await weft::testing::sleep_for(me, 10s);
    CHECK(w.worker_at(2).use<weft::engine::rref_service>().idle());
  });
  CHECK(w.run(2min));
  CHECK(asked == 2);
}

weft::immediate<void> take(const weft::rref<box>&, const std::vector<int>&) { return {}; }
int make_and_name(weft::worker& me) {
  kept = me.peer(1).make<box>();  // elsewhere than on its thread: sent later
  try {
    me.peer(1).post<&take>(kept, std::vector<int>(1000));  // passes it
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == weft::errc::resource_exhausted);
  }
  return 1;
}

TEST_CASE(
    "moments: an object is made though it was named and forgotten before, without memory for that "
    "message, too") {
  int used = 0, lacked = 0;
  for (std::uint64_t seed = 0; seed < rounds(40, 400); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how = that_lacks_memory(2, 600);
    how.faults_end = 200ms;
    how.whole_frames = seed % 4 == 0;
    how.keeps_story = true;
    weft::sim::world w(seed, how, with_references());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      co_await weft::testing::sleep_for(me, 100ms);
      if (me.rank() == 1) co_return co_await weft::testing::sleep_for(me, 20s);
      w.pause(1, 5ms);
      const auto done = co_await me.peer(0).call<&make_and_name>(weft::as_expected);
      co_await weft::testing::sleep_for(me, 1s);
      if (done && kept && w.at(1).alive()) {
        const auto got = co_await kept.call<&box::get>(weft::within(5s), weft::as_expected);
        INFO((got ? std::string() : got.error().message()));
        CHECK(got);
        used += got ? 1 : 0;
      }
      kept = {};
    });
    CHECK(w.run(2min));
    kept = {};
    lacked += w.story().find("it lacked memory") != std::string::npos ? 1 : 0;
  }
  CHECK(used > rounds(20, 200));
  CHECK(lacked > rounds(4, 40));
}

int plain_echo(int x) { return x; }
weft::immediate<int> quick_echo(int x) { return x; }

TEST_CASE("moments: a handler of one worker ends another one, with all that waits there") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    weft::sim::settings how;
    how.worker.waiting = 0s;
    how.worker.on_loss = weft::loss_policy::go_on();
    how.worker.window_bytes = 512 * 1024;
    weft::sim::world w(seed, how, with_references());
    bool crashed = false;
    struct says_so {
      weft::worker& me;
      ~says_so() {
        try {
          me.peer(0).post<&plain_echo>(1);
        } catch (const weft::rpc_error&) {
        }
      }
    };
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 1) {
        const says_so at_the_end{me};
        co_await weft::testing::sleep_for(me, 30s);
      }
      if (me.rank() != 0) co_return co_await weft::testing::sleep_for(me, 30s);
      co_await me.peer(1).call<&quick_echo>(1);
      for (int i = 0; i < 400; ++i) me.peer(1).post<&plain_echo>(i);
      co_await me.peer(1).call<&quick_echo>(1);
      w.crash(1);
      crashed = true;
      co_await weft::testing::sleep_for(me, 1s);
      CHECK_FALSE(w.at(1).alive());
    });
    CHECK(w.run(2min));
    CHECK(crashed);
  }
}

struct tracked {
  std::shared_ptr<int> keeps;
  [[nodiscard]] long count(const std::vector<int>&) const { return keeps.use_count(); }
};

TEST_CASE("moments: an object dies with its last reference, also where memory lacked for its use") {
  int seen = 0, lacked = 0;
  for (std::uint64_t seed = 0; seed < rounds(30, 300); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how = that_lacks_memory(1, 512);
    how.faults_end = 50ms;
    weft::sim::world w(seed, how, with_references());
    const auto alive = std::make_shared<int>(0);
    bool looked = false;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      {
        const weft::rref<tracked> one = me.share(tracked{alive});
        for (int i = 0; i < 5; ++i) {
          const auto got =
              co_await one.call<&tracked::count>(std::vector<int>(1000), weft::as_expected);
          if (got) continue;
          CHECK(got.error() == weft::errc::resource_exhausted);
          ++lacked;
        }
      }
      co_await weft::testing::sleep_for(me, 1s);
      looked = true;
      CHECK(alive.use_count() == 1);
      CHECK(me.use<weft::engine::rref_service>().idle());
    });
    CHECK(w.run(1min));
    if (looked) ++seen;
  }
  CHECK(seen == static_cast<int>(rounds(30, 300)));
  CHECK(lacked > rounds(3, 30));
}

TEST_CASE("moments: what a handler throws ends the run, by its words") {
  weft::sim::settings how = that_lacks_memory(2, 0);
  how.worker.rendezvous_deadline = 5s;
  weft::sim::world w(1, how);
  w.start([](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    asio::post(weft::detail::context_of(me),
               [] { throw std::runtime_error("thrown by a handler, in no few words"); });
    co_await weft::testing::sleep_for(me, 10s);
  });
  CHECK(w.run(1min));
  CHECK(w.failed(0));
  CHECK(w.ended(0).message().find("in no few words") != std::string::npos);
}

// ── what no random program has met in 10^5 worlds ──

struct unwritable {
  static constexpr std::string_view weft_structure = "sim_moments::unwritable 1";
  friend void weft_encode(weft::writer&, const unwritable&) {
    throw std::runtime_error("it cannot be written");
  }
  friend unwritable weft_decode(weft::reader&, std::type_identity<unwritable>) { return {}; }
};
void takes(unwritable) {}
std::size_t length(const std::string& text) { return text.size(); }

TEST_CASE("moments: who leaves the line without having sent lets the next one go") {
  for (std::uint64_t seed = 0; seed < rounds(20, 200); ++seed) {
    CAPTURE(seed);
    const bool by_deadline = seed % 2 == 0;  // near the moment when there is room
    weft::sim::settings how = that_goes_on();
    how.workers = 2;
    how.worker.window_bytes = 4096;
    how.wires.jitter = 1ms;
    weft::sim::world w(seed, how);
    int heard = 0;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return co_await weft::testing::sleep_for(me, 3s);
      co_await me.peer(1).call<&quick_echo>(1);
      w.pause(1, 200ms);
      const weft::time_point began = me.time().now();
      me.peer(1).post<&length>(std::string(8000, 'x'));
      const auto leaves = [&](weft::worker& here) -> asio::awaitable<void> {
        if (by_deadline) {
          const weft::within limit(199ms + std::chrono::microseconds(seed * 17));
          static_cast<void>(co_await here.peer(1).call<&quick_echo>(2, limit, weft::as_expected));
        } else {
          const auto got = co_await here.peer(1).call<&takes>(unwritable(), weft::as_expected);
          CHECK_FALSE(got);
        }
      };
      const auto stays = [&](weft::worker& here) -> asio::awaitable<void> {
        CHECK(co_await here.peer(1).call<&quick_echo>(7) == 7);
        CHECK(here.time().now() - began < 220ms);
        ++heard;
      };
      auto first = me.spawn(leaves(me));
      auto second = me.spawn(stays(me));
      co_await weft::testing::sleep_for(me, 150ms);
      CHECK(heard == 0);
      co_await std::move(first);
      co_await std::move(second);
    });
    CHECK(w.run(1min));
    CHECK(heard == 1);
  }
}

asio::awaitable<box> made_in_a_second(weft::worker& me) {
  co_await weft::testing::sleep_for(me, 1s);
  co_return box();
}

TEST_CASE("moments: who has used up its window gets back at once what little has begun") {
  bool went = false;
  weft::sim::settings how = that_goes_on();
  how.workers = 2;
  how.worker.window_bytes = 16 * 1024;  // of which a quarter is told without being asked for
  weft::sim::world w(1, how, with_references());
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return co_await weft::testing::sleep_for(me, 5s);
    co_await me.peer(1).call<&quick_echo>(1);
    const weft::rref<box> slow = me.peer(1).remote<&made_in_a_second>();
    for (int i = 0; i < 2; ++i) me.peer(1).post<&quick_echo>(i);
    std::vector<weft::future<int>> wait_for_it;
    for (int i = 0; i < 13; ++i) wait_for_it.push_back(slow.start<&box::get>());
    const weft::time_point began = me.time().now();
    CHECK(co_await me.peer(1).call<&quick_echo>(7) == 7);
    CHECK(me.time().now() - began < 50ms);
    for (auto& each : wait_for_it) CHECK(co_await std::move(each) == 3);
    went = true;
  });
  CHECK(w.run(1min));
  CHECK(went);
}

asio::awaitable<void> never(weft::worker& me) { return weft::testing::sleep_for(me, 10min); }

TEST_CASE("moments: a loss that rank 0 has noticed is known to who never met the lost one") {
  for (std::uint64_t seed = 0; seed < rounds(5, 40); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how = that_goes_on();
    how.wires.jitter = 1ms;
    weft::sim::world w(seed, how);
    bool asked = false;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 0) {
        co_await weft::testing::sleep_for(me, 100ms);
        w.crash(1);
      }
      if (me.rank() == 2) {
        co_await weft::testing::sleep_for(me, 500ms);
        const weft::time_point began = me.time().now();
        const auto got = co_await me.peer(1).call<&quick_echo>(1, weft::as_expected);
        REQUIRE_FALSE(got);
        CHECK(got.error() == weft::errc::peer_died);
        CHECK(got.error().ran() == weft::call_progress::not_sent);
        CHECK(me.time().now() - began < 10ms);
        asked = true;
      }
      co_await weft::testing::sleep_for(me, 5s);
    });
    CHECK(w.run(1min));
    CHECK(asked);
  }
}

int begun, heard;
asio::awaitable<void> waits_through(weft::worker& me, int others) {
  ++begun;
  if (others > 0) {
    co_await me.spawn(waits_through(me, others - 1));
  } else {
    CHECK_FALSE(co_await me.peer(2).call<&never>(weft::as_expected));
    CHECK_FALSE(co_await me.peer(me.rank()).call<&never>(weft::as_expected));  // until calls fail
    CHECK_FALSE(co_await me.peer(me.rank()).call<&never>(weft::as_expected));  // until links close
  }
  ++heard;
}

TEST_CASE(
    "moments: what functions wait for has an outcome when the run fails, also through others") {
  for (int others = 0; others < 8; ++others) {
    CAPTURE(others);
    begun = heard = 0;
    weft::sim::settings how;
    how.worker.lost_after = 1s;
    how.worker.waiting = 0s;
    weft::sim::world w(1, how);
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 0) me.peer(1).post<&waits_through>(others);
      co_await weft::testing::sleep_for(me, 1s);
      if (me.rank() == 0) w.crash(2);
      co_await weft::testing::sleep_for(me, 20s);
    });
    CHECK(w.run(1min));
    CHECK(w.failed(1));
    CHECK(begun == others + 1);
    CHECK(heard == begun);
  }
}

TEST_CASE("moments: who was refused for the other's connection tries again when that one fails") {
  int met = 0;
  for (std::uint64_t seed = 0; seed < rounds(40, 400); ++seed) {
    CAPTURE(seed);
    weft::sim::world w(static_cast<std::uint64_t>(seed), that_goes_on());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      co_await weft::testing::sleep_for(me, 10ms);
      if (me.rank() == 0) {
        co_await weft::testing::sleep_for(me, seed / 20 * 25us);
        w.wires().reset(1, 2);
      }
      if (me.rank() == 1) {  // its own connection would stay, and nobody waits for it any more
        co_await weft::testing::sleep_for(me, seed % 20 * 25us);
        static_cast<void>(
            co_await me.peer(2).call<&quick_echo>(1, weft::within(50us), weft::as_expected));
      }
      if (me.rank() == 2) {
        const auto got =
            co_await me.peer(1).call<&quick_echo>(2, weft::within(3s), weft::as_expected);
        CHECK((got || got.error() == weft::errc::peer_died));  // it was lost if it was up
        if (got) ++met;
      }
      co_await weft::testing::sleep_for(me, 1s);
    });
    CHECK(w.run(1min));
  }
  CHECK(met > rounds(6, 100));
}

struct homebody {
  weft::worker* home = nullptr;
  homebody() = default;
  homebody(const homebody& o) : home(o.home) {
    if (home) CHECK(home->on_thread());
  }
  homebody(homebody&&) = default;
  asio::awaitable<void> stay(weft::worker& me) {
    home = &me;
    co_return;
  }
  static constexpr std::string_view weft_structure = "sim_moments::homebody 1";
  friend void weft_encode(weft::writer&, const homebody&) {}
  friend homebody weft_decode(weft::reader&, std::type_identity<homebody>) { return {}; }
};

TEST_CASE("moments: to_here copies where the object's coroutine functions run") {
  bool went = false;
  weft::sim::settings how = that_goes_on();
  how.worker.io_threads = 1;
  weft::sim::world w(1, how, with_references());
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const weft::rref<homebody> there = me.peer(1).make<homebody>();
    co_await there.call<&homebody::stay>();
    static_cast<void>(co_await there.to_here());
    went = true;
  });
  CHECK(w.run(1min));
  CHECK(went);
}

}  // namespace sim_moments
