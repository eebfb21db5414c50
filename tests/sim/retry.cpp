// SPDX-License-Identifier: BSL-1.0
// Calls with weft::retry in virtual time: which attempts there are, when, and what has run.
#include <weft/core/future.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/sim/world.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <core/for_ever.hpp>
#include <core/run_all.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <new>
#include <sim/calls.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sim_retry {

using namespace std::chrono_literals;
using enum weft::errc;
using enum weft::call_progress;
using weft::as_expected;
using weft::duration;
using weft::error;
using weft::expected;
using weft::peer;
using weft::retry;
using weft::within;
using weft::worker;
using weft::testing::rounds;

/// How often something lacks, one world at a time, and what has been seen there.
struct state {
  int to_write = 0, to_read = 0, to_run = 0, to_write_back = 0;
  int never_answered = 0;  // calls of `late`
  int ran = 0, running = 0;
  weft::sim::world* world = nullptr;
  std::vector<weft::time_point> written{};  // when each attempt was, or was not for want of memory

  static void take(int& lacks) {
    if (lacks > 0 && --lacks >= 0) throw std::bad_alloc();
  }
};
state now;

/// An argument that says when it is written.
struct watched {
  static constexpr std::string_view weft_structure = "sim_retry::watched 1";
  explicit watched(int n) : number(n) {}
  watched(watched&&) = default;  // never copied
  int number;
};
void weft_encode(weft::writer& w, const watched& v) {
  now.written.push_back(now.world->now());
  state::take(now.to_write);
  weft::encode(w, v.number);
}
watched weft_decode(weft::reader& r, std::type_identity<watched>) {
  state::take(now.to_read);
  return watched(weft::decode<int>(r));
}

void nothing() {}
int once(watched v) {
  ++now.ran;
  state::take(now.to_run);
  return v.number;
}
int often(watched v) { return once(std::move(v)); }
int throws(watched) { return ++now.ran > 0 ? throw std::runtime_error("no") : 0; }
asio::awaitable<int> late_once(watched v) {
  struct counted {
    counted() { ++now.running; }
    ~counted() { --now.running; }
  } const here;
  ++now.ran;
  if (now.never_answered-- > 0) co_await weft::testing::for_ever();
  co_return v.number;
}
asio::awaitable<int> late(watched v) { return late_once(std::move(v)); }

struct box {
  static constexpr std::string_view weft_structure = "sim_retry::box 1";
  int value = 3;
  int add(int n) {
    ++now.ran;
    state::take(now.to_run);
    return value + n;
  }
  int change(int n) {
    ++now.ran;
    state::take(now.to_run);
    return value += n;
  }
};
void weft_encode(weft::writer& w, const box& b) {
  state::take(now.to_write_back);
  weft::encode(w, b.value);
}
box weft_decode(weft::reader& r, std::type_identity<box>) { return {weft::decode<int>(r)}; }

}  // namespace sim_retry

template <>
inline constexpr bool weft::idempotent<&sim_retry::often> = true;
template <>
inline constexpr bool weft::idempotent<&sim_retry::throws> = true;
template <>
inline constexpr bool weft::idempotent<&sim_retry::late> = true;
template <>
inline constexpr bool weft::idempotent<&sim_retry::box::add> = true;

namespace sim_retry {

constexpr auto& often_by_name = weft::named<"sim_retry.often", &often>;

/// How a call went that worker 0 made.
struct outcome {
  expected<int> result{0};
  duration took{};
  std::vector<duration> gaps;  // between attempts
  std::size_t attempts = 0;
  std::uint64_t hash = 0;

  [[nodiscard]] const error& why() const { return result.error(); }
  [[nodiscard]] bool says(const char* words) const {
    return !result && result.error().message().find(words) != std::string::npos;
  }
};

using call = std::function<asio::awaitable<expected<int>>(worker& me, peer to)>;

enum class meet : std::uint8_t { before, in_the_call };
outcome play(std::uint64_t seed, const state& lacks, const call& make,
             const weft::sim::settings& how = {.workers = 2},
             const std::function<void(weft::sim::world&)>& besides = {}, meet when = meet::before) {
  weft::sim::world w(seed, how, weft::engine::services<weft::rref_service>());
  now = lacks;
  now.world = &w;
  outcome out;
  w.start([&](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    if (when == meet::before) co_await me.peer(1).call<&nothing>();
    const weft::time_point begun = w.now();
    out.result = co_await make(me, me.peer(1));
    out.took = w.now() - begun;
  });
  if (besides) besides(w);
  CHECK(w.run(10min));
  CHECK_FALSE(w.ended(0));
  CHECK(now.running == 0);
  out.attempts = now.written.size();
  for (std::size_t i = 1; i < now.written.size(); ++i) {
    out.gaps.push_back(now.written[i] - now.written[i - 1]);
  }
  out.hash = w.hash();
  now.world = nullptr;
  return out;
}

template <auto F>
call calls(retry how, duration limit = 1h) {
  return [how, limit](worker&, peer to) {
    return to.call<F>(watched(7), how, within(limit), as_expected);
  };
}

TEST_CASE("retry: what did not run is called again until it does, and runs once") {
  for (const state& lacks : {state{.to_write = 3}, state{.to_read = 3}}) {
    const outcome o = play(1, lacks, calls<&once>({}));
    REQUIRE(o.result);
    CHECK(*o.result == 7);
    CHECK(now.ran == 1);
    CHECK(o.attempts == 4);
    CHECK(o.took > 0ms);
    CHECK(o.took < 50ms + 100ms + 200ms + 2ms);
  }
}

TEST_CASE("retry: a function that is not idempotent never runs twice") {
  const outcome lacked = play(1, {.to_run = 1}, calls<&once>({}));
  CHECK(lacked.why() == resource_exhausted);
  CHECK(lacked.why().ran() == executed);
  CHECK(lacked.says("; 1 attempt "));
  CHECK(now.ran == 1);
  const outcome slow = play(1, {.never_answered = 1}, calls<&late_once>({.each = 20ms}));
  CHECK(slow.why() == timed_out);
  CHECK(slow.why().ran() == maybe_executed);
  CHECK_FALSE(slow.why().safe_to_repeat());
  CHECK(slow.took >= 20ms);
  CHECK(slow.took < 21ms);
  CHECK(now.ran == 1);
}

TEST_CASE("retry: an idempotent function that ran is called again, also by a name of its own") {
  for (const call& make : {calls<&often>({}), calls<often_by_name>({})}) {
    const outcome o = play(1, {.to_run = 2}, make);
    REQUIRE(o.result);
    CHECK(*o.result == 7);
    CHECK(now.ran == 3);
    CHECK(o.attempts == 3);
  }
}

TEST_CASE("retry: an attempt of an idempotent function without a reply in its time is given up") {
  const outcome o = play(1, {.never_answered = 2}, calls<&late>({.each = 200ms}));
  REQUIRE(o.result);
  CHECK(*o.result == 7);
  CHECK(now.ran == 3);
  CHECK(o.took >= 400ms);
  CHECK(o.took < 400ms + 50ms + 100ms + 2ms);
}

TEST_CASE("retry: one deadline is over all attempts, which get what is left of it") {
  const retry often_at_once{.attempts = 100, .first = 0ms, .longest = 0ms, .each = 300ms};
  const state silent{.never_answered = 1000};
  weft::sim::settings by_default{.workers = 2};
  by_default.worker.call_deadline = 1s;
  const call without_limit = [=](worker&, peer to) {
    return to.call<&late>(watched(7), often_at_once, as_expected);
  };
  // The deadline of the call that it is a part of.
  const call inherits = [=](worker& me, peer to) -> asio::awaitable<expected<int>> {
    auto scope = weft::make_intrusive<weft::call_scope>();
    scope->deadline = me.time().now() + 1s;
    return weft::with_scope(weft::detail::context_of(me), std::move(scope),
                            to.call<&late>(watched(7), often_at_once, as_expected));
  };
  for (const outcome& o : {play(1, silent, calls<&late>(often_at_once, 1s)),
                           play(1, silent, without_limit, by_default), play(1, silent, inherits)}) {
    CHECK(o.why() == timed_out);
    CHECK(o.why().ran() == maybe_executed);
    CHECK(o.took >= 1s);
    CHECK(o.took < 1s + 1ms);
    CHECK(o.attempts == 4);  // 300, 300, 300 and 100 ms
    CHECK(o.says("; 4 attempts (after 1000 ms)"));
    CHECK(o.why().detail().deadline == 1s);
  }
  // Of its own there is none left.
  const outcome too_late = play(1, silent, calls<&late>(often_at_once, 0s));
  CHECK(too_late.why() == timed_out);
  CHECK(too_late.why().ran() == not_sent);
  CHECK(too_late.attempts == 0);
}

TEST_CASE("retry: a pause that would not end before the deadline is not begun") {
  int at_once = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const outcome o = play(seed, {.to_write = 1000},
                           calls<&once>({.attempts = 100, .first = 1s, .longest = 10s}, 400ms));
    CHECK(o.why() == resource_exhausted);
    CHECK(o.why().safe_to_repeat());
    CHECK(o.took < 400ms);
    CHECK(o.says(o.attempts == 1 ? "; 1 attempt " : " attempts "));
    if (o.attempts == 1) {
      ++at_once;
      CHECK(o.took < 1ms);
    }
  }
  CHECK(at_once > 8);
  CHECK(at_once < 28);
}

TEST_CASE(
    "retry: there are as many attempts as one says, one at least, and the error counts them") {
  for (const int n : {-1, 0, 1, 2, 7}) {
    CAPTURE(n);
    const int made = std::max(n, 1);
    const std::string counted =
        "; " + std::to_string(made) + (made == 1 ? " attempt " : " attempts ");
    const outcome o = play(1, {.to_read = 1000}, calls<&once>({.attempts = n}));
    CHECK(o.attempts == static_cast<std::size_t>(made));
    CHECK(o.why() == resource_exhausted);
    CHECK(o.why().ran() == not_executed);
    CHECK(o.says(counted.c_str()));
    CHECK(now.ran == 0);
    // Thrown, it is the same.
    const outcome thrown =
        play(1, {.to_read = 1000}, [n](worker&, peer to) -> asio::awaitable<expected<int>> {
          try {
            co_return co_await to.call<&once>(watched(7), retry{.attempts = n});
          } catch (const weft::rpc_error& e) {
            co_return weft::unexpected(e.error());
          }
        });
    CHECK(thrown.attempts == static_cast<std::size_t>(made));
    CHECK(thrown.why().message() == o.why().message());
  }
}

TEST_CASE("retry: pauses are drawn below a limit that doubles up to the longest") {
  constexpr duration limits[] = {50ms, 100ms, 200ms, 400ms, 500ms, 500ms};
  std::vector<duration> shortest(6, 1h), longest(6);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const outcome o =
        play(seed, {.to_write = 1000}, calls<&once>({.attempts = 7, .longest = 500ms}));
    REQUIRE(o.gaps.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(o.gaps[i] >= 0ms);
      CHECK(o.gaps[i] < limits[i] + 1ms);
      shortest[i] = std::min(shortest[i], o.gaps[i]);
      longest[i] = std::max(longest[i], o.gaps[i]);
    }
  }
  for (std::size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(shortest[i] < limits[i] / 8);
    CHECK(longest[i] > limits[i] - limits[i] / 8);
  }
}

TEST_CASE("retry: a seed decides when attempts are made") {
  const auto once_more = [] { return play(5, {.to_write = 3, .to_read = 1}, calls<&once>({})); };
  const outcome a = once_more(), b = once_more();
  CHECK(a.hash == b.hash);
  CHECK(a.gaps == b.gaps);
  CHECK(a.gaps.size() == 4);
}

TEST_CASE("retry: what another attempt would not change ends the call at once") {
  const outcome threw = play(1, {}, calls<&throws>({}));
  CHECK(threw.why() == remote_exception);
  CHECK(threw.says("no; 1 attempt"));
  CHECK(now.ran == 1);
  weft::sim::settings goes_on{.workers = 2};
  goes_on.worker.on_loss = weft::loss_policy::go_on();
  goes_on.worker.lost_after = 1s;
  const outcome died = play(1, {.never_answered = 1}, calls<&late>({.attempts = 50}), goes_on,
                            [](weft::sim::world& w) {
                              CHECK_FALSE(w.run(500ms));
                              w.crash(1);
                            });
  CHECK(died.why() == peer_died);
  CHECK(died.says("; 1 attempt "));
  CHECK(died.took < 1s);
}

TEST_CASE("retry: how far any attempt got is how far the call got") {
  // The first may have run, and the others were not sent.
  const outcome o = play(
      1, {.never_answered = 1},
      [](worker&, peer to) {
        return to.call<&late>(watched(7), retry{.attempts = 3, .each = 100ms}, as_expected);
      },
      {.workers = 2},
      [](weft::sim::world& w) {
        CHECK_FALSE(w.run(50ms));
        now.to_write = 1000;
      });
  CHECK(o.attempts == 3);
  CHECK(o.why() == resource_exhausted);
  CHECK(o.why().ran() == maybe_executed);
  CHECK(now.ran == 1);
}

TEST_CASE("retry: cancelling ends a pause at once, and says so") {
  const retry rests{.attempts = 100, .first = 1h, .longest = 1h};
  const auto stopped = [](worker& me, weft::future<int> f) -> asio::awaitable<expected<int>> {
    co_await weft::testing::sleep_for(me, 10ms);
    f.request_stop();
    try {
      co_return co_await std::move(f).get();
    } catch (const weft::rpc_error& e) {
      co_return weft::unexpected(e.error());
    }
  };
  const call started = [&](worker& me, peer to) {
    return stopped(me, to.start<&once>(watched(7), rests, within(24h)));
  };
  const call spawned = [&](worker& me, peer to) {
    return stopped(me, me.spawn(to.call<&once>(watched(7), rests, within(24h))));
  };
  for (const call& make : {started, spawned}) {
    const outcome o = play(1, {.to_read = 1000}, make);
    CHECK(o.why() == cancelled);
    CHECK(o.why().ran() == not_executed);
    CHECK(o.why().cause() == resource_exhausted);
    CHECK(o.says("in a pause between attempts; 1 attempt "));
    CHECK(o.says("'sim_retry::once'"));
    CHECK(o.attempts == 1);
    CHECK(o.took >= 10ms);
    CHECK(o.took < 11ms);
  }
  // As a value, to who goes on.
  const outcome value =
      play(1, {.to_read = 1000}, [&](worker& me, peer to) -> asio::awaitable<expected<int>> {
        auto f = me.spawn(to.call<&once>(watched(7), rests, within(24h), as_expected));
        co_await weft::testing::sleep_for(me, 10ms);
        f.request_stop();
        co_return co_await std::move(f).get();
      });
  CHECK(value.why() == cancelled);
  CHECK(value.took < 11ms);
}

TEST_CASE("retry: what is given up before two workers have met was not sent, and is called again") {
  const outcome o = play(
      1, {}, calls<&once>({.attempts = 100, .longest = 100ms, .each = 100ms}), {.workers = 2},
      [](weft::sim::world& w) {
        w.wires().cut(0, 1);
        w.wires().cut(1, 0);
        CHECK_FALSE(w.run(1s));
        w.wires().heal(0, 1);
        w.wires().heal(1, 0);
      },
      meet::in_the_call);
  REQUIRE(o.result);
  CHECK(*o.result == 7);
  CHECK(now.ran == 1);
  CHECK(o.attempts > 4);
  CHECK(o.took >= 1s);
}

TEST_CASE("retry: a future's call is on its way at once, and called again") {
  const outcome o = play(1, {.to_read = 2}, [](worker&, peer to) -> asio::awaitable<expected<int>> {
    weft::future<int> f = to.start<&once>(watched(7), retry{});
    CHECK(now.written.size() == 1);
    co_return co_await std::move(f);
  });
  REQUIRE(o.result);
  CHECK(now.ran == 1);
  CHECK(o.attempts == 3);
}

TEST_CASE("retry: through a reference, members are called again, and a copy is asked for again") {
  const outcome add = play(1, {.to_run = 2}, [](worker&, peer to) {
    return to.make<box>().call<&box::add>(4, retry{}, as_expected);
  });
  REQUIRE(add.result);
  CHECK(*add.result == 7);
  CHECK(now.ran == 3);
  const outcome change = play(1, {.to_run = 1}, [](worker&, peer to) {
    return to.make<box>().call<&box::change>(4, retry{}, as_expected);
  });
  CHECK(change.why() == resource_exhausted);
  CHECK(now.ran == 1);
  const outcome copy =
      play(1, {.to_write_back = 2}, [](worker&, peer to) -> asio::awaitable<expected<int>> {
        const weft::rref<box> there = to.make<box>();
        co_return (co_await there.to_here(retry{})).value;
      });
  REQUIRE(copy.result);
  CHECK(*copy.result == 3);
  CHECK(now.to_write_back == 0);
}

/// How often each call's function ran, and how each call ended.
struct tally {
  struct one {
    bool may_run_twice = false, has_ended = false;
    int ran = 0;
    error failure{};
    duration late{};  // behind its deadline
  };
  std::deque<one> calls;
};
tally all;

/// What their memory may lack for.
using ballast = std::vector<std::uint64_t>;
std::uint64_t counted(std::uint64_t id, const ballast&) {
  ++all.calls.at(id).ran;
  return id;
}
asio::awaitable<std::uint64_t> counted_slowly(worker& me, std::uint64_t id, ballast) {
  ++all.calls.at(id).ran;
  co_await weft::testing::sleep_for(me, weft::testing::draw_duration() / 4);
  co_return id;
}

}  // namespace sim_retry

template <>
inline constexpr bool weft::idempotent<&sim_retry::counted_slowly> = true;

namespace sim_retry {

template <auto F>
asio::awaitable<void> count_one(worker& me, bool may_run_twice) {
  const std::uint64_t id = all.calls.size();
  all.calls.emplace_back().may_run_twice = may_run_twice;
  const duration limit = 2 * weft::testing::draw_duration();
  const retry how{.first = 10ms, .each = weft::testing::draw_duration() / 4};
  weft::sim::world& world = *now.world;
  const weft::time_point begun = me.time().now();
  const duration paused_before = world.paused(me.rank());
  const auto r = co_await me.peer(weft::testing::draw(3))
                     .call<F>(id, ballast(200), how, within(limit), as_expected);
  tally::one& mine = all.calls[id];
  mine.has_ended = true;
  if (!r) mine.failure = r.error();
  const duration paused = world.paused(me.rank()) - paused_before;
  mine.late = me.time().now() - begun - limit - paused - paused / 90;
}

weft::sim::settings brutal(std::uint64_t seed) {
  weft::sim::settings s;
  if (seed % 3 != 0) s.worker.io_threads = static_cast<unsigned>(seed % 3 - 1);
  s.worker.waiting = 0s;
  s.worker.rendezvous_deadline = 3s;
  s.worker.shutdown_deadline = 3s;
  s.worker.lost_after = 1s;
  s.worker.on_loss = weft::loss_policy::go_on();
  if (seed % 2 == 0) s.worker.window_bytes = 4096;
  s.whole_frames = seed % 5 < 2;
  s.wires.jitter = seed % 7 * 1ms;
  s.mean_between_faults = 50ms;
  s.faults_end = 2s;
  s.cuts = s.pauses = true;
  s.resets = s.crashes = seed % 4 == 1;
  s.longest_cut = s.longest_pause = 200ms;
  s.lacks_memory_per_1024 = seed % 4 == 2 ? 128 : 0;
  return s;
}

TEST_CASE("retry: whatever goes wrong, errors are true, and what does harm runs once at most") {
  std::uint64_t repeated = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < rounds(20, 200); ++seed) {
    CAPTURE(seed);
    all = {};
    {
      weft::sim::world w(seed, brutal(seed));
      weft::testing::witness sees(w);
      now = {};
      now.world = &w;
      w.start([](worker& me) -> asio::awaitable<void> {
        for (int i = 0; i < 12; ++i) {
          if (weft::testing::draw(2) == 0) {
            co_await count_one<&counted>(me, false);
          } else {
            co_await count_one<&counted_slowly>(me, true);
          }
        }
      });
      CHECK(w.run(5min));
    }
    for (const tally::one& c : all.calls) {
      INFO(c.failure.message());
      CHECK((c.may_run_twice || c.ran <= 1));
      if (c.ran > 1) ++repeated;
      if (!c.has_ended) continue;
      ++ended;
      CHECK(c.late < 50ms);
      if (!c.failure || c.failure.ran() == executed) CHECK(c.ran >= 1);
      if (c.failure && c.failure.safe_to_repeat()) CHECK(c.ran == 0);
    }
  }
  CHECK(ended > rounds(70, 1000));
  CHECK(repeated > rounds(1, 20));
}

}  // namespace sim_retry
