// SPDX-License-Identifier: BSL-1.0
// Children that end before their parent does.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

namespace detail {
template <class T>
inline constexpr bool is_expected = false;
template <class T, class E>
inline constexpr bool is_expected<tl::expected<T, E>> = true;
}  // namespace detail

/// Spawns children and waits for all of them. Use it through `with_task_group`, on the executor's
/// thread only.
///
///   co_await weft::with_task_group([&](weft::task_group& g) -> asio::awaitable<void> {
///     for (weft::peer p : me.peers("helper")) g.spawn(p.call<&prepare>(step));
///     co_return;
///   });
class task_group {
 public:
  explicit task_group(asio::any_io_executor executor);
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  /// Cancels the children that run, without waiting for them.
  ~task_group();

  /// Starts a child on the group's executor, in the scope of that executor. After `cancel`, or once
  /// a child has failed, the new child is dropped instead. Nothing is kept of a child that has
  /// ended. If the child throws, `join` throws the same.
  void spawn(asio::awaitable<void> child);

  /// The same; the child's result is dropped.
  template <class T>
    requires(!std::is_void_v<T>)
  void spawn(asio::awaitable<T> child) {
    static_assert(!detail::is_expected<T>,
                  "weft: nobody would see the error in a child's weft::expected; spawn the call "
                  "without weft::as_expected.");
    spawn(without_result(std::move(child)));
  }

  /// Asks every child to end. No child is spawned any more.
  void cancel();

  /// Children that run.
  [[nodiscard]] std::size_t size() const noexcept;

  /// Waits until every child has ended. If a child fails, the others are cancelled, and its error
  /// is thrown. If that is an rpc_error, its text also has the other failures, except cancelled
  /// children. Cancelling the wait cancels the children; it still lasts until they have ended. If
  /// none has failed, it then throws system_error operation_aborted.
  [[nodiscard]] asio::awaitable<void> join();

 private:
  struct state;
  class running;

  [[noreturn]] static void rethrow(const state& s);
  template <class T>
  static asio::awaitable<void> without_result(asio::awaitable<T> child);
  static asio::awaitable<void> watch(task_group* group, std::size_t place, running mine,
                                     asio::awaitable<void> child);
  [[nodiscard]] std::size_t reserve();
  void forget(std::size_t place) noexcept;

  asio::any_io_executor executor_;
  intrusive_ptr<state> state_;
  std::vector<future<void>> children_;  // empty ones at the places that are free
  std::vector<std::size_t> free_;
};

/// Runs `body(group)` on the awaiting coroutine's executor, then waits for the children. They run
/// on the executor `children`, which the same thread must run; if it is empty, on the coroutine's.
/// If the body throws, the children are cancelled first, and the body's error is thrown. Else
/// errors are those of `join`. Cancelling cancels the body and the children, and waits for both.
template <class Body>
[[nodiscard]] asio::awaitable<void> with_task_group(Body body, asio::any_io_executor children = {});

}  // namespace weft

#include <weft/core/impl/task_group.hpp>
#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/core/impl/task_group_once.hpp>
#endif
