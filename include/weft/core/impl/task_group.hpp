// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/task_group.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/task_group.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/this_coro.hpp>

#include <exception>
#include <utility>

namespace weft {

template <class T>
asio::awaitable<void> task_group::without_result(asio::awaitable<T> child) {
  static_cast<void>(co_await std::move(child));
}

template <class Body>
asio::awaitable<void> with_task_group(Body body, asio::any_io_executor children) {
  if (!children) children = co_await asio::this_coro::executor;
  task_group group(std::move(children));
  std::exception_ptr failure;
  try {
    co_await body(group);
  } catch (...) {
    failure = std::current_exception();  // rethrown below, after the children have ended
    group.cancel();
  }
  // A coroutine that was cancelled itself could await nothing otherwise.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  try {
    co_await detail::or_die([&] { return group.join(); });
  } catch (...) {
    if (!failure) failure = std::current_exception();  // else the body's came first
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
