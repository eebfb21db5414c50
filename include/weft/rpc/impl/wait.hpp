// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/wait.hpp.
#pragma once

#include <weft/core/detail/blocking_end.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/rpc/detail/process_workers.hpp>
#include <weft/rpc/wait.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft {
namespace detail {

/// Blocks until `end` is set. Throws as `weft::wait` says; `me` is looked at every 50 ms. It counts
/// what it has waited: the worker's clock may stand still where nobody runs its loop.
inline void wait_for_end(worker& me, blocking_end& end, duration limit) {
  constexpr duration look = std::chrono::milliseconds(50);
  constexpr duration patience = std::chrono::seconds(1);
  std::optional<duration> idle;  // for so long
  std::uint64_t runs = 0;        // of the loop, when it was last found idle
  for (duration left = std::max(limit, duration::zero());;) {
    const duration waits = std::min(left, look);
    if (end.wait_for(waits)) return;
    left -= waits;
    switch (me.loop()) {
    case worker::loop_state::runs:
      idle.reset();
      break;
    case worker::loop_state::idle:
      // Who polls is inside for moments only.
      if (const std::uint64_t times = me.times_run(); !idle || times != runs) {
        runs = times;
        idle = duration::zero();
      } else {
        *idle += waits;
      }
      if (*idle < patience) break;
      throw rpc_error(errc::invalid_argument,
                      "weft::wait: nobody runs the loop of worker '" + me.name() +
                          "', so the awaited work cannot go on",
                      call_progress::maybe_executed);
    case worker::loop_state::over:
      if (end.wait_for(look)) return;
      throw rpc_error(errc::shutting_down,
                      "weft::wait: the run of worker '" + me.name() + "' is over",
                      call_progress::maybe_executed);
    }
    if (left > duration::zero()) continue;
    throw rpc_error(errc::timed_out, "weft::wait: the awaited work has not ended",
                    call_progress::maybe_executed);
  }
}

/// Throws on a thread that somebody waits for.
inline void require_may_wait() {
  if (!process_workers::any([](worker& w) { return w.needs_this_thread(); })) return;
  throw rpc_error(errc::invalid_argument,
                  "weft::wait would block a thread that runs a worker's loop or its I/O, and the "
                  "awaited work needs that thread: use co_await there");
}

}  // namespace detail

template <class T>
T wait(worker& me, asio::awaitable<T> work, std::optional<within> limit) {
  detail::require_may_wait();
  struct shared {
    detail::blocking_end end;
    std::optional<detail::stored<T>> value;
    std::exception_ptr failure;
  };
  const auto state = std::make_shared<shared>();
  auto fulfil = [](asio::awaitable<T> w, std::shared_ptr<shared> s) -> asio::awaitable<void> {
    // Set also if the loop drops this coroutine.
    struct setter {
      shared& s;
      ~setter() { s.end.set(); }
    } const at_the_end{*s};
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(w);
        s->value.emplace();
      } else {
        s->value.emplace(co_await std::move(w));
      }
    } catch (...) {
      s->failure = std::current_exception();
    }
  };
  const future<void> running = start_on(me.get_executor(), fulfil(std::move(work), state));
  try {
    detail::wait_for_end(me, state->end, limit ? limit->limit : me.settings().call_deadline);
  } catch (...) {
    // What it uses of this thread's should not go before it has heard that it is cancelled.
    detail::or_die([&] { running.request_stop(); });
    static_cast<void>(state->end.wait_for(std::chrono::milliseconds(250)));
    throw;
  }
  detail::rethrow_taken(state->failure);
  if (!state->value) {
    throw rpc_error(errc::shutting_down, "weft::wait: the loop of the worker has ended",
                    call_progress::maybe_executed);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*state->value);
}

template <class T>
T wait(worker& me, future<T> work, std::optional<within> limit) {
  return wait(me, std::move(work).get(), limit);
}

template <class T>
T wait(future<T> work, std::optional<within> limit) {
  return wait(std::move(work).get(), limit);
}

template <class T>
T wait(asio::awaitable<T> work, std::optional<within> limit) {
  std::size_t count = 0;
  worker* const me = detail::process_workers::only(count);
  if (!me) {
    throw rpc_error(errc::invalid_argument,
                    count == 0 ? "weft::wait: this process has no worker"
                               : "weft::wait: this process has " + std::to_string(count) +
                                     " workers: name one, weft::wait(me, ...)");
  }
  return wait(*me, std::move(work), limit);
}

}  // namespace weft
