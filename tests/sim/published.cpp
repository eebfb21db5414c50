// SPDX-License-Identifier: BSL-1.0
// Names of objects in simulated worlds: losses, and memory that lacks.
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/published.hpp>
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

namespace sim_published {

using namespace std::chrono_literals;
using weft::errc;
using weft::testing::rounds;
using weft::testing::that_goes_on;
using weft::testing::with_references;

weft::engine::rref_service& references(weft::worker& me) {
  return static_cast<weft::engine::rref_service&>(me.use<weft::engine::rref_service>());
}

struct model {
  int value = 3;
  [[nodiscard]] int get() const { return value; }
};
weft::immediate<void> take_name(const weft::caller& who, const std::string& name) {
  who.self().unpublish(name);
  return {};
}

TEST_CASE("published: who waits at a worker that is lost hears it, and no name of it leads on") {
  for (std::uint64_t seed = 0; seed < rounds(5, 30); ++seed) {
    CAPTURE(seed);
    int heard = 0;
    weft::sim::world w(seed, that_goes_on(), with_references());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 1) {
        me.publish("model", me.share(model{}));
        co_return co_await weft::testing::sleep_for(me, 60s);
      }
      if (me.rank() == 2) {
        me.publish("its", co_await me.peer(1).lookup<model>("model"));
        co_return co_await weft::testing::sleep_for(me, 60s);
      }
      {
        const auto before = co_await me.peer(2).lookup<model>("its");
        CHECK(co_await before.call<&model::get>() == 3);
        auto waiting = me.spawn(me.peer(1).lookup<model>("never"));
        co_await weft::testing::sleep_for(me, 1s);
        CHECK_FALSE(waiting.ready());
        const bool silently = seed % 2 == 0;
        w.crash(1, silently);
        const auto crashed = w.now();
        try {
          static_cast<void>(co_await std::move(waiting));
        } catch (const weft::rpc_error& e) {
          INFO(e.what());
          CHECK(e.error() == errc::peer_died);
          ++heard;
        }
        CHECK(w.now() - crashed < 10s);
        const auto again = co_await me.peer(1).lookup<model>("model", weft::as_expected);
        REQUIRE_FALSE(again);
        CHECK(again.error() == errc::peer_died);
        co_await weft::testing::sleep_for(me, 5s);  // worker 2 has heard of it
        const auto its = co_await me.peer(2).lookup<model>("its", weft::as_expected);
        INFO((its ? std::string("found it") : its.error().message()));
        REQUIRE_FALSE(its);
        CHECK(its.error() == errc::rref_owner_died);
        ++heard;
      }
      co_await me.peer(2).call<&take_name>("its");
      co_await weft::testing::sleep_for(me, 5s);
      CHECK(references(me).idle());
      CHECK(references(w.worker_at(2)).idle());
    });
    REQUIRE(w.run(5min));
    CHECK(heard == 2);
  }
}

TEST_CASE("published: who is lost while it waits leaves nothing behind") {
  for (std::uint64_t seed = 0; seed < rounds(5, 30); ++seed) {
    CAPTURE(seed);
    bool looked = false;
    weft::sim::world w(seed, that_goes_on(), with_references());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 2) static_cast<void>(co_await me.peer(0).lookup<model>("never"));
      if (me.rank() != 0) co_return co_await weft::testing::sleep_for(me, 60s);
      co_await weft::testing::sleep_for(me, 5s);
      CHECK(references(me).published().waiting() == 1);
      const bool silently = seed % 2 == 0;
      w.crash(2, silently);
      co_await weft::testing::sleep_for(me, 10s);
      CHECK(references(me).published().waiting() == 0);
      CHECK(references(me).idle());
      looked = true;
    });
    REQUIRE(w.run(5min));
    CHECK(looked);
  }
}

TEST_CASE("published: who looked in vain hears it at its deadline, to the moment") {
  weft::sim::world w(1, {.workers = 2}, with_references());
  w.start([&](weft::worker& me) -> asio::awaitable<void> {
    if (me.rank() == 1) {
      co_await weft::testing::sleep_for(me, 2s);
      me.publish("model", me.share(model{}));
      co_return co_await weft::testing::sleep_for(me, 10s);
    }
    const auto begun = me.time().now();
    const auto never =
        co_await me.peer(1).lookup<model>("mdoel", weft::within(3s), weft::as_expected);
    REQUIRE_FALSE(never);
    CHECK(me.time().now() - begun >= 3s);
    CHECK(me.time().now() - begun < 3s + 1ms);
    CHECK(never.error() == errc::timed_out);
    const std::string says = never.error().message();
    CHECK_MESSAGE(says.find("published there: 'model'") != std::string::npos, says);
    co_await weft::testing::sleep_for(me, 10ms);
    CHECK(references(w.worker_at(1)).published().waiting() == 0);
  });
  REQUIRE(w.run(1min));
  for (std::uint32_t r = 0; r < 2; ++r) CHECK_FALSE(w.ended(r));
}

TEST_CASE("published: names and who waits for them stay true while memory lacks") {
  int found = 0, refused = 0;
  const std::string name(1000, 'm');  // a message of more than 1 KiB
  for (std::uint64_t seed = 0; seed < rounds(30, 300); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how;
    how.worker.waiting = 0s;
    how.worker.rendezvous_deadline = 3s;
    how.worker.on_loss = weft::loss_policy::go_on();
    how.whole_frames = false;  // who is asked lacks it
    how.lacks_memory_per_1024 = 400;
    how.faults_end = 300ms;
    weft::sim::world w(seed, how, with_references());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      co_await weft::testing::sleep_for(me, 50ms);
      if (me.rank() == 1) {
        me.publish(name, me.share(model{}));
        co_await weft::testing::sleep_for(me, 20s);
        CHECK(references(me).published().waiting() == 0);
        CHECK(me.unpublish(name));
        co_await weft::testing::sleep_for(me, 20s);
        CHECK(references(me).idle());
        co_return;
      }
      for (int i = 0; i < 5; ++i) {
        try {
          const auto it = co_await me.peer(1).lookup<model>(name, weft::within(10s));
          found += co_await it.call<&model::get>() == 3 ? 1 : 0;
        } catch (const weft::rpc_error& e) {
          INFO(e.what());
          CHECK(e.error() == errc::resource_exhausted);
          ++refused;
        }
      }
      co_await weft::testing::sleep_for(me, 45s);
    });
    CHECK(w.run(5min));
  }
  CHECK(found > rounds(20, 300));
  CHECK(refused > rounds(3, 50));
}

TEST_CASE("published: whatever a world does to it, a lookup ends, and nothing of it is left") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < rounds(5, 40); ++seed) {
    CAPTURE(seed);
    weft::sim::settings how = that_goes_on();
    how.workers = 4;
    if (seed % 2 == 0) how.worker.io_threads = 0;
    weft::sim::world w(seed, how, with_references());
    int ended = 0;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      for (std::uint32_t i = 0; i < 8; ++i) {
        const std::string name = "model" + std::to_string(i % 3);
        const std::uint32_t whom = (me.rank() + i) % 4;
        if (i % 2 == 0) {
          try {
            me.publish(name, me.share(model{static_cast<int>(i)}));
          } catch (const weft::rpc_error& e) {
            CHECK(e.error() == errc::duplicate_name);
          }
        }
        auto left = me.spawn(me.peer(whom).lookup<model>("never", weft::within(300ms)));
        const auto it =
            co_await me.peer(whom).lookup<model>(name, weft::within(200ms), weft::as_expected);
        if (i == 5) me.unpublish(name);
        if (i == 3) left.request_stop();
        if (it) {
          const auto got = co_await it->template call<&model::get>(weft::as_expected);
          found += got ? 1 : 0;
        } else {
          CHECK(it.error() == errc::timed_out);
        }
        try {
          static_cast<void>(co_await std::move(left));
        } catch (const weft::rpc_error& e) {
          CHECK((e.error() == errc::timed_out || e.error() == errc::cancelled));
          ++ended;
        }
      }
      co_await weft::testing::sleep_for(me, 10s);
      for (int i = 0; i < 3; ++i) me.unpublish("model" + std::to_string(i));
      co_await weft::testing::sleep_for(me, 5s);
      CHECK(references(me).idle());
    });
    REQUIRE(w.run(5min));
    CHECK(ended == 4 * 8);
    for (std::uint32_t r = 0; r < 4; ++r) CHECK_FALSE(w.ended(r));
  }
  CHECK(found > rounds(14, 200));
}

}  // namespace sim_published
