// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/future.hpp.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/resume_users.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/co_spawn.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/execution/context.hpp>
#include <asio/query.hpp>
#include <asio/use_awaitable.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// Shared by the future and the coroutine that computes it: the event of its end. Results are
/// written before it is set and constant after.
template <class T>
struct future_state final : event {
  explicit future_state(asio::any_io_executor where)
      : executor(std::move(where)),
        home(waiter_registry::of(asio::query(executor, asio::execution::context))) {}

  /// The work's thread, or whoever destroys the work. The first end counts.
  void end(std::exception_ptr why) {
    if (std::exchange(ended, true)) return;
    failure = std::move(why);
    set();
  }

  asio::any_io_executor executor;
  std::shared_ptr<waiter_registry> home;  // of `executor`: other threads post there guarded
  std::optional<stored<T>> value;
  std::exception_ptr failure;
  asio::cancellation_signal stop;  // on `executor` only
  bool ended = false;
};

/// Held by the work's coroutine, so that its future ends with it, however it ends.
template <class T>
class promise {
 public:
  explicit promise(intrusive_ptr<future_state<T>> state) noexcept : state_(std::move(state)) {}
  promise(promise&&) noexcept = default;
  promise& operator=(promise&&) = delete;
  ~promise() {
    if (!state_ || state_->ended) return;
    state_->end(std::make_exception_ptr(rpc_error(
        errc::cancelled, "the work was dropped before it ended", call_progress::maybe_executed)));
  }
  future_state<T>* operator->() const noexcept { return state_.get(); }

 private:
  intrusive_ptr<future_state<T>> state_;
};

}  // namespace weft::detail

namespace weft {

template <class T>
future<T>& future<T>::operator=(future&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
  }
  return *this;
}

template <class T>
asio::awaitable<void> future<T>::until_set(intrusive_ptr<event> end) {
  try {
    co_await event::wait(std::move(end));
  } catch (const std::system_error&) {
    std::rethrow_exception(given_up());
  }
}

namespace detail {
[[nodiscard]] inline error no_future() {
  return error(errc::invalid_argument,
               "this future is empty: it was awaited before, or moved from");
}
}  // namespace detail

template <class T>
asio::awaitable<T> future<T>::wait_copy(intrusive_ptr<detail::future_state<T>> state) {
  if (!state) throw rpc_error(detail::no_future());
  if (!state->is_set()) co_await until_set(state);
  if (state->failure) std::rethrow_exception(state->failure);
  if constexpr (!std::is_void_v<T>) co_return *state->value;
}

template <class T>
asio::awaitable<T> future<T>::wait_taken(future self) {
  if (!self.state_) throw rpc_error(detail::no_future());
  if (!self.state_->is_set()) co_await until_set(self.state_);
  if (self.state_->failure) std::rethrow_exception(self.state_->failure);
  if constexpr (!std::is_void_v<T>) co_return std::move(*self.state_->value);
}

/// Takes the result to `handler`, with whose executor and cancellation slot it waits. (What
/// binds those to a function copies the executor with each move.)
template <class T>
template <class Handler>
struct future<T>::taking {
  using executor_type = asio::associated_executor_t<Handler>;
  using cancellation_slot_type = asio::associated_cancellation_slot_t<Handler>;

  Handler handler;
  intrusive_ptr<detail::future_state<T>> state;

  [[nodiscard]] executor_type get_executor() const noexcept {
    return asio::get_associated_executor(handler);
  }
  [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept {
    return asio::get_associated_cancellation_slot(handler);
  }
  void operator()(asio::error_code ec) {
    auto slot = get_cancellation_slot();
    if (slot.is_connected()) slot.clear();  // it would keep the result
    if (ec) {
      future(std::move(state)).cancel();
      finish(std::move(handler), nullptr, given_up());
    } else {
      auto failure = state->failure;
      finish(std::move(handler), std::move(state), failure);
    }
  }
};

template <class T>
template <class Handler>
void future<T>::take(Handler handler, intrusive_ptr<detail::future_state<T>> state) {
  if (!state) {
    finish(std::move(handler), nullptr, std::make_exception_ptr(rpc_error(detail::no_future())));
    return;
  }
  intrusive_ptr<event> end = state;
  event::async_wait(std::move(end), taking<Handler>{std::move(handler), std::move(state)});
}

template <class T>
std::exception_ptr future<T>::given_up() {
  return std::make_exception_ptr(
      rpc_error(errc::cancelled, "waiting for a future", call_progress::maybe_executed));
}

template <class T>
template <class Handler>
void future<T>::finish(Handler handler, intrusive_ptr<detail::future_state<T>> state,
                       std::exception_ptr failure) {
  if constexpr (std::is_void_v<T>) {
    std::move(handler)(failure);
  } else if (failure || !state) {
    std::move(handler)(failure, T());
  } else {
    std::move(handler)(nullptr, std::move(*state->value));
  }
}

template <class T>
void future<T>::cancel() noexcept {
  try {
    stop(std::exchange(state_, nullptr));
  } catch (...) {  // of the user's executor
    detail::die_of(std::current_exception());
  }
}

template <class T>
void future<T>::stop(intrusive_ptr<detail::future_state<T>> state) {
  if (!state || state->is_set()) return;
  const auto guard = detail::waiter_registry::guard_context(state->home);
  if (!guard) return;  // the work is being destroyed with its io_context
  auto executor = state->executor;
  asio::dispatch(executor, [stopped = std::move(state)] {
    // A cancellation handler may be the user's, and throw.
    detail::resume_users(stopped->executor,
                         [&] { stopped->stop.emit(asio::cancellation_type::terminal); });
  });
}

template <class T>
future<T> start_on(asio::any_io_executor executor, asio::awaitable<T> work) {
  auto state = make_intrusive<detail::future_state<T>>(executor);
  auto fulfil = [](asio::awaitable<T> w, detail::promise<T> p) -> asio::awaitable<void> {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(w);
        p->value.emplace();
      } else {
        p->value.emplace(co_await std::move(w));
      }
      p->end(nullptr);
    } catch (...) {
      p->end(std::current_exception());  // delivered to whoever awaits
    }
  };
  asio::co_spawn(executor, fulfil(std::move(work), detail::promise<T>(state)),
                 asio::bind_cancellation_slot(state->stop.slot(), [state](std::exception_ptr e) {
                   state->end(std::move(e));  // stopped before it began
                 }));
  return future<T>(std::move(state));
}

}  // namespace weft
