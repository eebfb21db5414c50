// SPDX-License-Identifier: BSL-1.0
// weft's own handlers on an io_context, its user's or its own. See out_of_memory.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/post.hpp>

#include <exception>
#include <utility>

namespace weft::detail {

/// Runs `handler` there, later. Any thread.
template <class Context, class Handler>
void post_or_die(Context&& to, Handler handler) noexcept {
  or_die([&] { asio::post(to, dies(std::move(handler))); });
}

/// Sets `alarm`, a `timer`, so that it runs `handler`.
template <class Timer, class Time, class Handler>
void arm_or_die(Timer& alarm, Time when, Handler handler) noexcept {
  or_die([&] { alarm.arm(when, dies(std::move(handler))); });
}

/// What was thrown and nobody waits for: std::bad_alloc ends the process, all else is dropped.
inline void die_of(const std::exception_ptr& failed) noexcept {
  if (!failed) return;
  try {
    std::rethrow_exception(failed);
  } catch (const std::bad_alloc&) {
    out_of_memory();
  } catch (...) {  // dropped
  }
}

/// Runs a coroutine of weft's there, and holds `keeps`, whose member it may be, until it has ended:
/// before it begins it holds nothing itself. What it throws but std::bad_alloc is dropped.
template <class Executor, class... Keeps>
void spawn_or_die(Executor&& on, asio::awaitable<void> work, Keeps... keeps) noexcept {
  or_die([&] {
    asio::co_spawn(std::forward<Executor>(on), std::move(work),
                   [... held = std::move(keeps)](const std::exception_ptr& failed) noexcept {
                     die_of(failed);
                   });
  });
}

}  // namespace weft::detail
