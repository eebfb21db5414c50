// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/sleep_for.hpp.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/context_owner.hpp>
#include <weft/core/detail/keep_result.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/core/sleep_for.hpp>
#include <weft/core/task_group.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/error.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace weft::detail {

/// Where a coroutine runs, and what time it is there.
template <class Context = asio::io_context>
struct place_in_time {
  explicit place_in_time(const asio::any_io_executor& executor) : io(io_context_of(executor)) {
    if (!io) {
      throw rpc_error(errc::invalid_argument,
                      "there is no clock here: the coroutine does not run on an io_context");
    }
    const context_owner* const worker = context_owners::of(*io);
    static basic_real_clock<Context> machines;
    time = worker ? &worker->time_here() : &machines;
  }
  Context* io;
  clock* time;
};

template <class Context>
asio::awaitable<void> sleep_on_clock(duration d) {
  const place_in_time<Context> here(co_await asio::this_coro::executor);
  co_await wait_until(*here.time, *here.io, later(here.time->now(), std::max(d, duration::zero())));
}
template <class Context>
asio::awaitable<void> wait_until(clock& time, Context& io, time_point when) {
  const auto over = make_intrusive<event>();
  asio::awaitable<void> waits = event::wait(over);
  const std::unique_ptr<timer> alarm = time.make_timer(io);
  alarm->arm(when, [over] { over->set(); });
  co_await std::move(waits);
}

/// Whether that may be the end of work that was cancelled.
[[nodiscard]] inline bool ends_by_cancelling(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& e) {
    return e.code() == asio::error::operation_aborted ||
           e.code() == make_error_code(errc::cancelled) ||
           e.code() == make_error_code(errc::timed_out);
  } catch (...) {
    return false;
  }
}

template <class T>
asio::awaitable<T> end_within(duration d, asio::awaitable<T> work) {
  const place_in_time<> here(co_await asio::this_coro::executor);
  const time_point until = later(here.time->now(), std::max(d, duration::zero()));
  const auto outer = this_scope();
  auto inner = outer ? outer->copy() : make_intrusive<call_scope>();
  if (!inner->deadline || *inner->deadline > until) inner->deadline = until;
  std::optional<stored<T>> result;
  bool late = false;
  const std::unique_ptr<timer> alarm = here.time->make_timer(*here.io);
  const auto body = [&](task_group& group) -> asio::awaitable<void> {
    if (until != time_point::max()) {
      alarm->arm(until, [&late, &group] {
        late = true;
        group.cancel();
      });
    }
    group.spawn(detail::keep(std::move(work), result));
    co_return;
  };
  std::exception_ptr failure;
  try {
    co_await with_task_group(body, scoped(*here.io, std::move(inner)));
  } catch (...) {
    failure = std::current_exception();
  }
  // What the work has done by then counts, though this may be cancelled, or late.
  if (!result) {
    const auto state = co_await asio::this_coro::cancellation_state;
    const bool given_up = state.cancelled() != asio::cancellation_type::none;
    if (failure && !(late && !given_up && ends_by_cancelling(failure))) {
      std::rethrow_exception(failure);
    }
    if (!late) throw_dropped();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    throw rpc_error(errc::timed_out,
                    "the work did not end within " + std::to_string(ms) + " ms and was cancelled",
                    call_progress::maybe_executed);
  }
  if constexpr (!std::is_void_v<T>) co_return std::move(*result);
}

}  // namespace weft::detail
