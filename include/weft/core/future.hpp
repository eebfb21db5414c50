// SPDX-License-Identifier: BSL-1.0
// The result of started work: `co_await std::move(f)` once, or `co_await f.copy()` often, if T can
// be copied.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>

#include <exception>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft {

namespace detail {
template <class T>
struct future_state;
template <class T>
using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
template <class>
inline constexpr bool is_moved_from = false;
struct future_access;
}  // namespace detail

/// Movable handle of work that already runs. Dropping an unfinished future cancels the work;
/// `std::move(f).detach()` lets it run. A future always ends: if its work is stopped before it
/// began, or destroyed with its io_context, it fails with operation_aborted or errc::cancelled.
/// Thread safety: one thread at a time; it may outlive the work's io_context.
///
///   weft::future<int> f = p.start<&count>(text);  // runs beside the next lines
///   int n = co_await std::move(f);
template <class T>
class [[nodiscard]] future {
 public:
  using value_type = T;
  /// The signature of an Asio completion handler for the result.
  using signature = std::conditional_t<std::is_void_v<T>, void(std::exception_ptr),
                                       void(std::exception_ptr, detail::stored<T>)>;

  future() noexcept = default;
  explicit future(intrusive_ptr<detail::future_state<T>> state) noexcept
      : state_(std::move(state)) {}
  future(future&&) noexcept = default;
  future& operator=(future&& other) noexcept;
  ~future() { cancel(); }

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(state_); }
  [[nodiscard]] bool ready() const { return state_ && state_->is_set(); }

  /// Gives a copy of the result, or throws the error of the work. Cancelling the wait does not
  /// cancel the work. Every cancelled wait for a future throws rpc_error cancelled. Waiting for an
  /// empty future throws rpc_error invalid_argument.
  [[nodiscard]] asio::awaitable<T> copy() const { return wait_copy(state_); }
  /// Moves the result out, for any T: `co_await std::move(f).get()`. Cancelling the wait cancels
  /// the work.
  [[nodiscard]] asio::awaitable<T> get() && { return wait_taken(std::move(*this)); }

  /// Moves the result out: `co_await std::move(f)`, if T is default constructible or void.
  /// Cancelling the wait cancels the work.
  template <asio::completion_token_for<signature> CompletionToken>
  auto operator()(CompletionToken&& token) && {
    static_assert(std::is_void_v<T> || std::is_default_constructible_v<T>,
                  "weft: co_await std::move(f) needs a T that can be default constructed, because "
                  "Asio completes with one when the work fails: use co_await std::move(f).get()");
    return asio::async_initiate<CompletionToken, signature>(
        [](auto handler, intrusive_ptr<detail::future_state<T>> state) {
          take(std::move(handler), std::move(state));
        },
        token, std::exchange(state_, nullptr));
  }

  /// A mistake: a static_assert explains it.
  template <asio::completion_token_for<signature> CompletionToken>
  auto operator()(CompletionToken&&) const& {
    static_assert(detail::is_moved_from<CompletionToken>,
                  "weft: awaiting a future moves its result out: write co_await std::move(f), or "
                  "co_await f.copy() for a copy");
  }

  /// Cancels the work. This future still gets its result or error.
  void request_stop() const { stop(state_); }
  /// Lets the work run without an owner; its result or error is dropped.
  void detach() && { state_ = nullptr; }

 private:
  static asio::awaitable<void> until_set(intrusive_ptr<event> end);
  static asio::awaitable<T> wait_copy(intrusive_ptr<detail::future_state<T>> state);
  static asio::awaitable<T> wait_taken(future self);
  template <class Handler>
  struct taking;
  template <class Handler>
  static void take(Handler handler, intrusive_ptr<detail::future_state<T>> state);
  template <class Handler>
  static void finish(Handler handler, intrusive_ptr<detail::future_state<T>> state,
                     std::exception_ptr failure);
  static std::exception_ptr given_up();
  void cancel() noexcept;
  static void stop(intrusive_ptr<detail::future_state<T>> state);
  friend struct detail::future_access;

  intrusive_ptr<detail::future_state<T>> state_;
};

/// Starts `work` on `executor` at once (inline if already there) and returns its future. Any
/// thread.
template <class T>
[[nodiscard]] future<T> start_on(asio::any_io_executor executor, asio::awaitable<T> work);

}  // namespace weft

#include <weft/core/impl/future.hpp>
