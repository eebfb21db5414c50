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

/// Blocks until `end` is set. Throws as `weft::wait` says.
void wait_for_end(worker& me, blocking_end& end, duration limit);
/// Throws on a thread that somebody waits for.
void require_may_wait();

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
