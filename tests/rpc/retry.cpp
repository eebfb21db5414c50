// SPDX-License-Identifier: BSL-1.0
// What is decided about a call that may be repeated, and calls that are repeated on other executors
// than the worker's. Repeated calls in virtual time: sim/retry.cpp.
#include <weft/core/event.hpp>
#include <weft/rpc/detail/retry_course.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <rpc/cluster.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace retries {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::duration;
using weft::errc;
using weft::error;
using weft::retry;
using weft::time_point;
using weft::within;
using weft::worker;
using weft::detail::repeats;
using weft::detail::retry_course;

int twice(int x) { return 2 * x; }
int count(int x);
struct meter {
  int read() const { return 3; }
  int reset() { return 0; }
};

}  // namespace retries

template <>
inline constexpr bool weft::idempotent<&retries::twice> = true;
template <>
inline constexpr bool weft::idempotent<&retries::meter::read> = true;
template <>
inline constexpr bool weft::idempotent<weft::named<"retries.count", &retries::count>> = true;

namespace retries {

template <auto F>
constexpr bool may_run_twice =
    weft::detail::repeats_of<weft::detail::exposed<F>> == repeats::anything;
static_assert(may_run_twice<&twice>);
static_assert(may_run_twice<weft::named<"retries.twice", &twice>>);
static_assert(may_run_twice<&meter::read>);
static_assert(!may_run_twice<&meter::reset>);
static_assert(!may_run_twice<&count>);
static_assert(may_run_twice<weft::named<"retries.count", &count>>);

TEST_CASE("retry: an error is safe to repeat where the call did not run") {
  for (const call_progress ran : {call_progress::not_sent, call_progress::not_executed,
                                  call_progress::maybe_executed, call_progress::executed}) {
    CHECK(error(errc::timed_out, "", ran).safe_to_repeat() ==
          (ran < call_progress::maybe_executed));
  }
}

/// A course whose pauses are as long as they can be, or nothing.
struct planned {
  planned(const retry& how, repeats what, duration limit = 1h)
      : course(how, what, start + limit), now(start) {}
  /// When the next one begins, if this attempt fails at once, or at the end of its time.
  std::optional<duration> fails(errc code, call_progress ran, bool at_its_end = false) {
    const time_point until = course.next(now);
    if (at_its_end) now = until;
    const error e(code, "", ran);
    weft::random_source drawn = [this] { return drawn_; };
    const auto next = course.pause_after(e, now, drawn);
    if (!next) return std::nullopt;
    const duration pause = *next - now;
    now = *next;
    return pause;
  }
  std::optional<duration> lacks() {
    return fails(errc::resource_exhausted, call_progress::not_sent);
  }
  void draws(duration pause) { drawn_ = static_cast<std::uint64_t>(pause.count()); }

  static constexpr time_point start{1h};
  retry_course course;
  time_point now;

 private:
  std::uint64_t drawn_ = 0;
};

TEST_CASE("retry: the longest pauses double until they are the longest of all") {
  for (const auto& [how, pauses] : std::vector<std::pair<retry, std::vector<duration>>>{
           {retry{.attempts = 9}, {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2s, 2s}},
           {retry{.attempts = 4, .first = 3s}, {2s, 2s, 2s}},
           {retry{.attempts = 4, .first = 1ms, .longest = 3ms}, {1ms, 2ms, 3ms}},
           {retry{.attempts = 3, .first = 0ms}, {0ms, 0ms}},
           {retry{.attempts = 3, .first = -5ms}, {0ms, 0ms}},
           {retry{.attempts = 3, .longest = -5ms}, {0ms, 0ms}},
           {retry{.attempts = 3, .first = 10min, .longest = duration::max()}, {10min, 20min}}}) {
    planned p(how, repeats::what_did_not_run);
    for (const duration most : pauses) {
      p.draws(most);
      CHECK(p.lacks() == most);
    }
    CHECK(p.lacks() == std::nullopt);
  }
  planned over(retry{}, repeats::what_did_not_run);
  over.draws(50ms + 1ns);  // what is drawn is taken modulo
  CHECK(over.lacks() == 0ms);
}

TEST_CASE("retry: whatever is asked for, nothing overflows") {
  planned p(retry{.attempts = std::numeric_limits<int>::max(),
                  .first = duration::max(),
                  .longest = duration::max(),
                  .each = duration::max()},
            repeats::anything);
  for (int i = 0; i < 200; ++i) CHECK(p.lacks() == 0ms);
  p.draws(duration::max());
  CHECK(p.lacks() == std::nullopt);
}

TEST_CASE("retry: what did not run is repeated, what may have run only if that does no harm") {
  for (const errc code : {errc::resource_exhausted, errc::too_many_calls, errc::timed_out}) {
    for (const call_progress ran : {call_progress::not_sent, call_progress::not_executed,
                                    call_progress::maybe_executed, call_progress::executed}) {
      CAPTURE(static_cast<int>(ran));
      const bool safe = ran <= call_progress::not_executed;
      const retry how{.each = 1s};
      CHECK(planned(how, repeats::what_did_not_run).fails(code, ran).has_value() == safe);
      CHECK(planned(how, repeats::anything).fails(code, ran).has_value());
    }
  }
}

TEST_CASE("retry: what never changes is not repeated, also if it did not run") {
  int final = 0;
  for (int code = 1; code <= static_cast<int>(errc::ambiguous_function); ++code) {
    if (weft::detail::worth_repeating(static_cast<errc>(code))) continue;
    ++final;
    CHECK_FALSE(planned({}, repeats::anything).fails(static_cast<errc>(code), {}));
  }
  CHECK(final == static_cast<int>(errc::ambiguous_function) - 3);
  // Nor what is no error of weft's.
  retry_course course({}, repeats::anything, planned::start + 1h);
  static_cast<void>(course.next(planned::start));
  weft::random_source none = [] { return std::uint64_t{0}; };
  const error other(std::make_error_code(std::errc::timed_out), nullptr);
  CHECK_FALSE(course.pause_after(other, planned::start, none));
}

TEST_CASE("retry: an attempt ends in its time or the call's, and after the call's there is none") {
  planned p(retry{.attempts = 10, .first = 0ms, .each = 300ms}, repeats::anything, 1s);
  const auto silent = [&p] {
    return p.fails(errc::timed_out, call_progress::maybe_executed, true);
  };
  for (const duration at : {300ms, 600ms, 900ms}) {
    CHECK(silent() == 0ms);
    CHECK(p.now - p.start == at);
  }
  CHECK(silent() == std::nullopt);
  CHECK(p.now - p.start == 1s);
  // Its own time is over also where its clock has not heard of it.
  planned early(retry{.first = 0ms}, repeats::anything, 1s);
  CHECK(early.fails(errc::timed_out, call_progress::maybe_executed) == std::nullopt);
  // A pause up to the deadline would lead to nothing.
  planned until(retry{.first = 1s}, repeats::anything, 1s);
  until.draws(1s);
  CHECK(until.lacks() == std::nullopt);
  planned before(retry{.first = 1s}, repeats::anything, 1s);
  before.draws(1s - 1ns);
  CHECK(before.lacks() == 1s - 1ns);
}

TEST_CASE("retry: the error says how often, and how far the furthest attempt got") {
  planned p({.each = 1ms}, repeats::anything);
  CHECK(p.fails(errc::timed_out, call_progress::maybe_executed));
  CHECK(p.fails(errc::timed_out, call_progress::not_executed));
  CHECK_FALSE(p.fails(errc::peer_died, call_progress::not_sent));
  const error e = p.course.conclude(error(errc::peer_died, "its link is lost"));
  CHECK(e == errc::peer_died);
  CHECK(e.ran() == call_progress::maybe_executed);
  CHECK(e.detail().text == "its link is lost; 3 attempts");
  CHECK(p.course.conclude(error(errc::peer_died)).detail().text == "3 attempts");
}

// ── on other executors ──

std::atomic<int> lacks{0};  // memory to read so many arguments
std::atomic<int> ran{0};
struct wants_memory {
  static constexpr std::string_view weft_structure = "retries::wants_memory 1";
};
void weft_encode(weft::writer&, const wants_memory&) {}
wants_memory weft_decode(weft::reader&, std::type_identity<wants_memory>) {
  return lacks-- > 0 ? throw std::bad_alloc() : wants_memory();
}
int run(wants_memory) { return ++ran; }

TEST_CASE("retry: a call that is awaited elsewhere pauses there, and resumes there") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    ran = 0;
    lacks = 3;
    asio::thread_pool others(1);
    const auto over = weft::make_intrusive<weft::event>();
    auto body = [](weft::peer to, asio::any_io_executor home) -> asio::awaitable<void> {
      CHECK(co_await to.call<&run>(wants_memory(), retry{.first = 1ms}) == 1);
      CHECK(co_await asio::this_coro::executor == home);
      CHECK_FALSE(to.self().on_thread());
    };
    asio::co_spawn(others, body(me.peer(1), others.get_executor()), [over](std::exception_ptr e) {
      CHECK_FALSE(e);
      over->set();
    });
    co_await weft::event::async_wait(over, asio::use_awaitable);
    CHECK(ran == 1);
    CHECK(lacks < 0);
    others.join();
  });
}

TEST_CASE("retry: a pause that is awaited elsewhere is cancelled there") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    ran = 0;
    lacks = 1000;
    asio::thread_pool others(1);
    asio::cancellation_signal stop;
    const auto over = weft::make_intrusive<weft::event>();
    error why;
    auto body = [](weft::peer to, error& how) -> asio::awaitable<void> {
      const retry rests{.attempts = 1000, .first = 1h, .longest = 1h};
      how = co_await failure_of(to.call<&run>(wants_memory(), rests, within(24h), as_expected));
    };
    const asio::any_io_executor strand = asio::make_strand(others.get_executor());
    asio::co_spawn(
        strand, body(me.peer(1), why),
        asio::bind_cancellation_slot(stop.slot(), [over](std::exception_ptr) { over->set(); }));
    const auto deadline = std::chrono::steady_clock::now() + 40s;
    while (lacks == 1000 && std::chrono::steady_clock::now() < deadline) {
      static_cast<void>(co_await me.peer(1).call<&twice>(1));
    }
    asio::post(strand, [&stop] { stop.emit(asio::cancellation_type::terminal); });
    co_await weft::event::async_wait(over, asio::use_awaitable);
    INFO(why.message());
    CHECK(why == errc::cancelled);
    CHECK(ran == 0);
    others.join();
  });
}

int count(int x) { return x; }

}  // namespace retries
