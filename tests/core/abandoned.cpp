// SPDX-License-Identifier: BSL-1.0
// The waits of core, abandoned.
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/task_group.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>

#include <asio/awaitable.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/abandoned.hpp>
#include <memory>
#include <utility>

namespace abandoned {

using namespace weft::testing;
using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;

asio::awaitable<void> until(intrusive_ptr<event> e) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
}
asio::awaitable<int> one_after(intrusive_ptr<event> e) {
  co_await until(std::move(e));
  co_return 1;
}

asio::awaitable<void> gets_one(const weft::future<int>& f) {
  const int result = co_await f.copy();
  CHECK(result == 1);
}

struct for_event : local_wait {
  static constexpr bool again = true;
  static constexpr bool from_any_thread = true;
  asio::awaitable<void> wait() { return until(gate); }
  void complete() { gate->set(); }
  intrusive_ptr<event> gate = make_intrusive<event>();
};

/// With its memory taken before.
struct for_event_kept : for_event {
  asio::awaitable<void> wait() { return event::wait(gate); }
};

/// In another scope.
struct for_event_scoped : for_event {
  asio::awaitable<void> wait() {
    return weft::with_scope(context(), make_intrusive<weft::call_scope>(), until(gate));
  }
};

/// Moves the result out: whoever waits owns the work.
struct for_future : local_wait {
  static constexpr bool from_any_thread = true;
  asio::awaitable<void> wait() {
    return [](weft::future<int> f) -> asio::awaitable<void> {
      const int result = co_await std::move(f);
      CHECK(result == 1);
    }(weft::start_on(context().get_executor(), one_after(gate)));
  }
  void complete() { gate->set(); }
  intrusive_ptr<event> gate = make_intrusive<event>();
};

/// The same for results of any type.
struct for_future_taken : for_future {
  asio::awaitable<void> wait() {
    return [](weft::future<int> f) -> asio::awaitable<void> {
      const int result = co_await std::move(f).get();
      CHECK(result == 1);
    }(weft::start_on(context().get_executor(), one_after(gate)));
  }
};

/// Copies it: the work goes on, and another may get it.
struct for_shared_future : local_wait {
  static constexpr bool again = true;
  static constexpr bool from_any_thread = true;
  asio::awaitable<void> wait() { return gets_one(result); }
  void complete() { gate->set(); }
  intrusive_ptr<event> gate = make_intrusive<event>();
  weft::future<int> result = weft::start_on(context().get_executor(), one_after(gate));
};

/// Stopped is the work, dropped its io_context, which is not the waiter's.
struct for_work_elsewhere {
  static constexpr bool again = false;
  static constexpr bool from_any_thread = true;
  static constexpr bool ends_when_dropped = true;
  asio::io_context& context() { return waiter; }
  asio::awaitable<void> wait() { return gets_one(result); }
  void complete() { gate->set(); }
  void cancel() {
    if (begun) {
      result.request_stop();
    } else {
      stop_first = true;
    }
  }
  void drop() { works.reset(); }
  void settle() {
    begun = true;
    for (int turn = 0; turn < 3; ++turn) {  // what one does may wake the other
      if (works) weft::testing::settle(*works);
      weft::testing::settle(waiter);
    }
  }
  intrusive_ptr<event> gate = make_intrusive<event>();
  asio::io_context waiter{1};
  std::unique_ptr<asio::io_context> works = std::make_unique<asio::io_context>(1);
  weft::future<int> result = begin();
  bool begun = false;
  bool stop_first = false;

 private:
  weft::future<int> begin() {
    asio::post(*works, [this] {  // in front of the work's beginning
      if (stop_first) result.request_stop();
    });
    return weft::start_on(works->get_executor(), one_after(gate));
  }
};

/// Waits for its children.
struct for_children : local_wait {
  static constexpr bool from_any_thread = true;
  asio::awaitable<void> wait() {
    return weft::with_task_group([gate = gate](weft::task_group& g) -> asio::awaitable<void> {
      g.spawn(until(gate));
      g.spawn(until(gate));
      co_return;
    });
  }
  void complete() { gate->set(); }
  intrusive_ptr<event> gate = make_intrusive<event>();
};

/// An entry of a timer list.
struct for_time : local_wait {
  static constexpr bool again = true;
  struct alarm final : weft::deadline_entry {
    alarm(weft::timer_list& l, weft::time_point when) : list(l) { list.add(*this, when); }
    ~alarm() override { list.remove(*this); }
    void expired() override { rang->set(); }
    weft::timer_list& list;
    intrusive_ptr<event> rang = make_intrusive<event>();
  };
  asio::awaitable<void> wait() {
    const alarm mine(*list, end);
    co_await until(mine.rang);
  }
  void complete() { time().expire(end - time().now()); }
  weft::time_point end = time().now() + std::chrono::seconds(1);
  std::unique_ptr<weft::timer_list> list = std::make_unique<weft::timer_list>(time(), context());
};

TEST_CASE_TEMPLATE("abandoned waits: every wait ends once, or goes with its io_context", W,
                   for_event, for_event_kept, for_event_scoped, for_future, for_future_taken,
                   for_shared_future, for_work_elsewhere, for_children, for_time) {
  abandon_in_every_way<W>();
}

TEST_CASE_TEMPLATE("abandoned waits: completed by another thread in the same moment", W, for_event,
                   for_event_kept, for_event_scoped, for_future, for_future_taken,
                   for_shared_future, for_work_elsewhere, for_children) {
  abandon_while_another_thread_completes<W>();
}

}  // namespace abandoned
