// SPDX-License-Identifier: BSL-1.0
// Runs a function on the compute pool. A coroutine awaits it, without blocking its thread.
#pragma once

#include <asio/awaitable.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {

namespace detail {
template <class>
inline constexpr bool is_awaitable = false;
template <class T, class Executor>
inline constexpr bool is_awaitable<asio::awaitable<T, Executor>> = true;
template <class F, class... Args>
using pool_result = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;
template <class F, class... Args>
[[nodiscard]] auto run_on_pool(F f, std::tuple<Args...> args)
    -> asio::awaitable<std::invoke_result_t<F, Args...>>;
}  // namespace detail

/// Runs `f(args...)` on the compute pool of the worker on whose executor it is awaited. (If several
/// workers live on one io_context: the one that has been there longest.) `f` runs in the caller's
/// scope: deadline, autograd context, grad mode. Gives its result, or throws its exception.
///
/// `f` and the arguments are copied or moved here. The pool's thread gives the arguments to `f` as
/// rvalues, and destroys all of them before this resumes. If this is cancelled, it throws
/// system_error operation_aborted at once. Then `f` does not begin, or it runs on and its result is
/// dropped. Throws rpc_error: invalid_argument if no worker lives here; shutting_down if the pool
/// ended first.
///
///   at::Tensor y = co_await weft::on_pool([](at::Tensor x) { return x.inverse(); }, x);
template <class F, class... Args>
[[nodiscard]] auto on_pool(F&& f, Args&&... args)
    -> asio::awaitable<detail::pool_result<F, Args...>> {
  static_assert(!std::is_reference_v<detail::pool_result<F, Args...>>,
                "weft: on_pool destroys what it is given before it resumes: the function must "
                "return a value, not a reference");
  static_assert(!detail::is_awaitable<detail::pool_result<F, Args...>>,
                "weft: a coroutine runs on its worker's thread, not on the pool: give on_pool a "
                "plain function");
  return detail::run_on_pool(std::decay_t<F>(std::forward<F>(f)),
                             std::tuple<std::decay_t<Args>...>(std::forward<Args>(args)...));
}

}  // namespace weft

#include <weft/core/impl/on_pool.hpp>
