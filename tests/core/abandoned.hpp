// SPDX-License-Identifier: BSL-1.0
// Every wait ends, or goes with its io_context, however and whenever it is abandoned.
//
//   what waits  ×  completion, cancellation, deadline, io_context dropped
//               ×  before it began, while it waits, both in one turn of the loop
//
// A new kind of wait is a class with what `abandoned_wait` lists, and a line in a
// TEST_CASE_TEMPLATE that calls `abandon_in_every_way`.
#pragma once

#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <concepts>
#include <core/loop.hpp>
#include <core/manual_clock.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace weft::testing {

enum class ending : std::uint8_t { completion, cancellation, deadline, dropped };
enum class moment : std::uint8_t { before, during, ending_first, completion_first };

inline std::string name_of(ending how) {
  const char* const names[] = {"completion", "cancellation", "deadline", "dropped"};
  return names[static_cast<int>(how)];
}
inline std::string name_of(moment when) {
  const char* const names[] = {"before it began", "while it waits",
                               "in one turn with its completion, which comes second",
                               "in one turn with its completion, which comes first"};
  return names[static_cast<int>(when)];
}

/// `wait` may begin more than once if `again`. `complete` makes happen what is waited for, from any
/// thread if `from_any_thread`. `drop` destroys an io_context that the wait needs; the waiter's
/// coroutine ends then if `ends_when_dropped`, or is destroyed. `settle` runs all that can run.
template <class W>
concept abandoned_wait = std::default_initializable<W> && requires(W& w) {
  { W::again } -> std::convertible_to<bool>;
  { W::from_any_thread } -> std::convertible_to<bool>;
  { W::ends_when_dropped } -> std::convertible_to<bool>;
  { w.context() } -> std::same_as<asio::io_context&>;
  { w.wait() } -> std::same_as<asio::awaitable<void>>;
  w.complete();
  w.drop();
  w.settle();
};

/// What most kinds share: one io_context, on the test's thread, and a clock that stands still. It
/// is dropped as a worker's is: first what waits there, at the very end itself.
class local_wait {
 public:
  static constexpr bool again = false;
  static constexpr bool from_any_thread = false;
  static constexpr bool ends_when_dropped = false;

  [[nodiscard]] asio::io_context& context() { return io_; }
  [[nodiscard]] manual_clock& time() { return time_; }
  void drop() {
    io_.drop_work();
    dropped_ = true;
  }
  void settle() {
    if (dropped_) return;
    testing::settle(io_);
    time_.expire(duration::zero());
    testing::settle(io_);
  }

 private:
  struct droppable : asio::io_context {
    using asio::io_context::io_context;
    void drop_work() { shutdown(); }
  };
  manual_clock time_;
  droppable io_{1};
  bool dropped_ = false;
};

namespace detail {

/// A deadline as a call has one: an entry of a list that cancels.
struct limit final : deadline_entry {
  explicit limit(std::unique_ptr<task>& t) : waits(t) {}
  void expired() override { waits->cancel(); }
  std::unique_ptr<task>& waits;
};

template <abandoned_wait W>
asio::awaitable<void> wait_with(W& w, [[maybe_unused]] std::shared_ptr<int> alive) {
  co_await w.wait();
}

/// Ends a wait, whose coroutine counts in `alive`, in one way at one moment.
template <abandoned_wait W>
void abandon(W& w, ending how, moment when, const std::shared_ptr<int>& alive) {
  constexpr auto a_second = std::chrono::seconds(1);
  manual_clock time;
  timer_list deadlines(time, w.context());
  std::unique_ptr<task> waits;
  limit over(waits);
  bool dropped = false;
  auto act = [&](ending what) {
    switch (what) {
    case ending::completion:
      return w.complete();
    case ending::cancellation:
      if constexpr (requires { w.cancel(); }) return w.cancel();
      return waits->cancel();
    case ending::dropped:
      dropped = true;
      return w.drop();
    case ending::deadline:
      return time.expire(a_second);
    }
  };
  // Each in front of what is queued later, and behind what is queued already.
  auto queue = [&](ending what) {
    if (what == ending::deadline) return act(what);  // queues its alarm
    asio::post(w.context(), [&act, what] { act(what); });
  };
  auto begin = [&] { waits = std::make_unique<task>(w.context(), wait_with(w, alive)); };

  if (how == ending::deadline) deadlines.add(over, time.now() + a_second);
  if (when == moment::before && how == ending::deadline) act(how);
  begin();  // as soon as the loop runs
  if (when != moment::before) {
    w.settle();
    REQUIRE_FALSE(waits->ended());
    CHECK(alive.use_count() > 1);
  }
  switch (when) {
  case moment::before:
    if (how != ending::deadline) act(how);
    break;
  case moment::during:
    act(how);
    break;
  case moment::ending_first:
    if (how == ending::dropped) {
      act(how);
      if (W::ends_when_dropped) act(ending::completion);
    } else {
      queue(how);
      queue(ending::completion);
    }
    break;
  case moment::completion_first:
    if (how == ending::dropped) {
      act(ending::completion);
      act(how);
    } else {
      queue(ending::completion);
      queue(how);
    }
    break;
  }
  w.settle();
  if (dropped && !W::ends_when_dropped) {
    CHECK_FALSE(waits->ended());
  } else {
    CHECK(waits->ended());
    if (when == moment::before || when == moment::during) {
      CHECK(waits->failed() == (how != ending::completion));
    }
  }
  if (!dropped && how != ending::completion && W::again) {  // nobody else is hurt by it
    task next(w.context(), wait_with(w, alive));
    w.settle();
    w.complete();
    w.settle();
    CHECK(next.ended());
    CHECK_FALSE(next.failed());
  }
  if (!dropped) w.drop();
  w.settle();
  deadlines.remove(over);
}

}  // namespace detail

/// All endings at all moments; afterwards nothing of the waiting coroutine is left.
template <abandoned_wait W>
void abandon_in_every_way() {
  for (const auto how :
       {ending::completion, ending::cancellation, ending::deadline, ending::dropped}) {
    for (const auto when :
         {moment::before, moment::during, moment::ending_first, moment::completion_first}) {
      CAPTURE(name_of(how));
      CAPTURE(name_of(when));
      const auto alive = std::make_shared<int>(0);
      {
        W w;
        detail::abandon(w, how, when, alive);
      }
      CHECK(alive.use_count() == 1);
    }
  }
}

/// Another thread completes the wait at the moment in which it is abandoned.
template <abandoned_wait W>
  requires(W::from_any_thread)
void abandon_while_another_thread_completes(int rounds = 100) {
  for (const auto how : {ending::cancellation, ending::dropped}) {
    CAPTURE(name_of(how));
    for (int round = 0; round < rounds; ++round) {
      const auto alive = std::make_shared<int>(0);
      {
        W w;
        task waits(w.context(), detail::wait_with(w, alive));
        w.settle();
        std::thread other([&w] { w.complete(); });
        if (how == ending::dropped) {
          w.drop();
        } else {
          waits.cancel();
          w.settle();
        }
        other.join();
        w.settle();
        if (how != ending::dropped || W::ends_when_dropped) REQUIRE(waits.ended());
        w.drop();
      }
      REQUIRE(alive.use_count() == 1);
    }
  }
}

}  // namespace weft::testing
