// SPDX-License-Identifier: BSL-1.0
// Calls that wait for an object that is still being made, and how such a wait ends.
#include "pure.hpp"

#include <asio/post.hpp>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

namespace rref_waits {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;

inline gate& door() {
  static gate it;
  return it;
}
inline std::atomic<int>& ran() {
  static std::atomic<int> it{0};
  return it;
}

/// Its constructor waits at the door.
struct late {
  int value;
  explicit late(int v) : value((door().pass(), v)) {}
  late(int v, int) : value(v) {}  // at once

  int plain(int x) {
    ++ran();
    return value + x;
  }
  asio::awaitable<int> coroutine(int x) {
    ++ran();
    co_return value + x;
  }
  weft::immediate<int> light(int x) {
    ++ran();
    return value + x;
  }
};

template <auto M>
asio::awaitable<int> use(rref<late> p) {
  const auto e = co_await p.call<M>(1, weft::as_expected);
  co_return e ? 0 : e.error().code().value();
}
asio::awaitable<int> use_plain(rref<late> p) { return use<&late::plain>(std::move(p)); }
asio::awaitable<int> use_coroutine(rref<late> p) { return use<&late::coroutine>(std::move(p)); }
asio::awaitable<int> use_light(rref<late> p) { return use<&late::light>(std::move(p)); }
template <auto M>
weft::future<int> start_use(weft::peer at, rref<late> p) {
  if constexpr (std::is_same_v<decltype(M), decltype(&late::plain)>) {
    return at.start<&use_plain>(std::move(p));
  } else if constexpr (std::is_same_v<decltype(M), decltype(&late::coroutine)>) {
    return at.start<&use_coroutine>(std::move(p));
  } else {
    return at.start<&use_light>(std::move(p));
  }
}

/// One way to end a wait, for each style of function.
template <template <auto> class Ending>
void for_each_style(std::uint32_t size, std::uint32_t cut_off = 0) {
  const auto once = [size, cut_off](const char* style, auto body) {
    CAPTURE(style);
    pure_everywhere(
        size,
        [body](pure_cluster& all, worker& me) -> asio::awaitable<void> {
          door().close();
          ran() = 0;
          co_await body(all, me);
        },
        cut_off);
  };
  once("plain", Ending<&late::plain>::run);
  once("coroutine", Ending<&late::coroutine>::run);
  once("light", Ending<&late::light>::run);
}

template <auto M>
struct made {
  static asio::awaitable<void> run(pure_cluster& all, worker& me) {
    for (const std::uint32_t rank : {1u, 0u}) {
      door().close();
      auto p = me.peer(rank).make<late>(5);
      auto called = p.start<M>(1);
      CHECK(co_await eventually([&] { return waiting(all, rank) == 1; }));
      door().open();
      CHECK(co_await std::move(called) == 6);
      CHECK(waiting(all, rank) == 0);
    }
  }
};

template <auto M>
struct late_for_deadline {
  static asio::awaitable<void> run(pure_cluster& all, worker& me) {
    for (const std::uint32_t rank : {1u, 0u}) {
      door().close();
      auto p = me.peer(rank).make<late>(5);
      CHECK(co_await me.peer(rank).make<late>(1, 1).call<&late::coroutine>(1) == 2);  // connected
      const auto e = co_await p.call<M>(1, weft::within(50ms), weft::as_expected);
      REQUIRE_FALSE(e);
      CHECK(e.error() == errc::timed_out);
      CHECK(co_await eventually([&] { return waiting(all, rank) == 0; }));
      door().open();
      CHECK(co_await p.call<&late::plain>(1) == 6);
    }
  }
};

template <auto M>
struct cancelled {
  static asio::awaitable<void> run(pure_cluster& all, worker& me) {
    for (const std::uint32_t rank : {1u, 0u}) {
      door().close();
      auto p = me.peer(rank).make<late>(5);
      auto called = p.start<M>(1);
      CHECK(co_await eventually([&] { return waiting(all, rank) == 1; }));
      called.request_stop();
      CHECK(co_await eventually([&] { return waiting(all, rank) == 0; }));
      door().open();
      CHECK((co_await thrown_by(called.copy())) == errc::cancelled);
      CHECK((co_await p.call<&late::plain>(1)) == 6);
    }
    CHECK(ran() == 2);
  }
};

template <auto M>
struct link_lost {
  static asio::awaitable<void> run(pure_cluster& all, worker& me) {
    auto p = me.peer(1).make<late>(5);
    auto used = start_use<M>(me.peer(2), p);
    CHECK(co_await eventually([&] { return waiting(all, 1) == 1; }));
    co_await me.peer(1).call<&lose_link>(2u);
    CHECK(co_await eventually([&] { return waiting(all, 1) == 0; }));
    const errc why = co_await code_or_failure(std::move(used));
    CHECK((why == errc::rref_owner_died || why == errc::peer_died));  // it is left behind
    door().open();
    CHECK(co_await p.call<&late::plain>(1) == 6);
    CHECK(ran() == 1);
  }
};

/// The maker is done in the same turn in which the caller gives up, as often as it happens.
template <auto M>
struct both_at_once {
  static asio::awaitable<void> run(pure_cluster& all, worker& me) {
    door().open();
    for (std::uint64_t i = 0; i < rounds(12, 50); ++i) {
      for (const std::uint32_t rank : {1u, 0u}) {
        auto p = me.peer(rank).make<late>(static_cast<int>(i));
        auto called = p.start<M>(1);
        if (i % 3 == 1) co_await asio::post(asio::use_awaitable);
        if (i % 3 == 2) co_await me.peer(rank).make<late>(1, 1).call<&late::light>(1);
        called.request_stop();
        const auto e = co_await thrown_by(called.copy());
        CHECK((!e || e == errc::cancelled));
      }
    }
    CHECK(co_await eventually([&] { return waiting(all, 0) == 0 && waiting(all, 1) == 0; }));
  }
};

/// A chain of what is made of one another, the first of something that is not made.
struct link_of_chain {
  explicit link_of_chain(int) {
    door().pass();
    throw std::runtime_error("the first is broken");
  }
  int step() { return 0; }
};
int next_of(int& before) { return before + 1; }
weft::immediate<int> light_next_of(int& before) { return before + 1; }

namespace {

TEST_CASE("waiting for an object: it is made") { for_each_style<made>(2); }
TEST_CASE("waiting for an object: the deadline passes") { for_each_style<late_for_deadline>(2); }
TEST_CASE("waiting for an object: the caller gives up") { for_each_style<cancelled>(2); }
TEST_CASE("waiting for an object: the caller's link is lost") { for_each_style<link_lost>(3, 2); }
TEST_CASE("waiting for an object: it is made while the caller gives up") {
  for_each_style<both_at_once>(2);
}

TEST_CASE("waiting for an object: copies of it are waited for like calls") {
  pure_everywhere(2, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    door().close();
    auto p = me.peer(1).make<late>(5);
    auto kept = p.remote<&late::plain>(1);
    for (int i = 0; i < 20; ++i) {
      const auto e = co_await kept.to_here(weft::within(1ms), weft::as_expected);
      CHECK_FALSE(e);
    }
    CHECK(co_await eventually([&] { return waiting(all, 1) == 1; }));  // what makes `kept`
    door().open();
    CHECK(co_await kept.to_here() == 6);
  });
}

TEST_CASE("waiting for an object: the owner ends it at its deadline, without word of the caller") {
  for (const over how : {over::inproc, over::tcp}) {
    run_pure(2, how, 1, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
      door().close();
      auto p = me.peer(1).make<late>(5);
      co_await me.peer(1).make<late>(1, 1).call<&late::light>(1);
      // The limit must not pass before the request waits there; it is longer where that takes long.
      rref<int> kept;
      bool waits = false;
      // bounded: the limit grows to a minute
      for (auto limit = 100ms; !waits && limit < 60s; limit *= 4) {
        const auto over = std::chrono::steady_clock::now() + limit;
        kept = p.remote<&late::coroutine>(1, weft::within(limit));
        // bounded: by the limit
        while (!waits && std::chrono::steady_clock::now() < over) {
          co_await asio::post(asio::use_awaitable);
          waits = waiting(all, 1) == 1;
        }
      }
      REQUIRE(waits);
      // This worker's thread is busy: its own timer tells nobody anything.
      for (int i = 0; i < 30000 && waiting(all, 1) != 0; ++i) std::this_thread::sleep_for(1ms);
      CHECK(waiting(all, 1) == 0);
      const auto e = co_await kept.to_here(weft::as_expected);
      REQUIRE_FALSE(e);
      CHECK(e.error() == errc::timed_out);
      CHECK(e.error().ran() == weft::call_progress::not_executed);
      CHECK(e.error().message().find("before the object was made") != std::string::npos);
      door().open();
      CHECK(co_await p.call<&late::plain>(1) == 6);
    });
  }
}

TEST_CASE("waiting for an object: a chain of many fails with its first, one behind the other") {
  // Failing one inside the other would take more than a thread's stack.
  const int length = run_all() ? 5'000 : 1'000;
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    run_pure(2, how, 1, [length](pure_cluster& all, worker& me) -> asio::awaitable<void> {
      for (const std::uint32_t rank : {1u, 0u}) {
        door().close();
        auto last = me.peer(rank).make<link_of_chain>(1).remote<&link_of_chain::step>();
        for (int i = 0; i < length; ++i) {
          last = i % 2 == 0 ? last.remote<&next_of>() : last.remote<&light_next_of>();
        }
        CHECK(co_await eventually(
            [&] { return waiting(all, rank) == static_cast<std::uint64_t>(length) + 1; }));
        door().open();
        const auto e = co_await last.to_here(weft::as_expected);
        REQUIRE_FALSE(e);
        CHECK(e.error() == errc::remote_exception);
        CHECK(e.error().message().find("the first is broken") != std::string::npos);
        CHECK(waiting(all, rank) == 0);
      }
    });
  }
}

TEST_CASE("waiting for an object: the run ends meanwhile") {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    door().close();
    ran() = 0;
    {
      weft::options o = with_io_threads(io_threads);
      o.compute_threads = 2;
      o.shutdown_deadline = std::chrono::milliseconds(500);  // what makes them stands at the door
      pure_cluster all(2, how, o);
      const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
        if (me.rank() != 0) co_return;
        auto p = me.peer(1).make<late>(5);
        auto own = me.peer(0).make<late>(5);
        p.start<&late::coroutine>(1).detach();
        p.start<&late::plain>(1).detach();
        own.start<&late::coroutine>(1).detach();
        own.start<&late::light>(1).detach();
        CHECK(co_await eventually([&] { return waiting(all, 1) == 2 && waiting(all, 0) == 2; }));
        throw std::runtime_error("enough");
      });
      CHECK(ends[0]);
      CHECK(ends[1]);
      door().open();
    }
    CHECK(ran() == 0);
  }
}

}  // namespace
}  // namespace rref_waits
