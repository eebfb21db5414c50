// SPDX-License-Identifier: BSL-1.0
// Where one coroutine waits until any thread wakes it: for transports without a descriptor.
#pragma once

#include <weft/core/detail/erased_handler.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/preallocated_post.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/execution.hpp>
#include <asio/io_context.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft::detail {

/// One waits at a time. May outlive its io_context: then nothing happens.
class pipe_waiter final : public registered_waiter {
 public:
  explicit pipe_waiter(asio::io_context& io) : executor_(io.get_executor()) {
    enter(waiter_registry::of(io), kept::by_owner);
  }

  /// The io_context's thread. Ends after the next wake(), at once if one came since the last wait.
  /// Throws rpc_error: cancelled.
  [[nodiscard]] asio::awaitable<void> wait() {
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        [this](auto handler) {
          static_assert(decltype(handler_)::template has_room_for<decltype(handler)>,
                        "waiting allocates nothing");
          when_woken(std::move(handler));
        },
        asio::use_awaitable);
    const auto cancellation = co_await asio::this_coro::cancellation_state;
    if (cancellation.cancelled() != asio::cancellation_type::none) {
      throw rpc_error(errc::cancelled, "the wait was cancelled", call_progress::maybe_executed);
    }
  }

  /// The same for any completion handler; a cancelled one is called as if it had been woken.
  template <class Handler>
  void when_woken(Handler handler) {
    slot_ = asio::get_associated_cancellation_slot(handler);
    handler_.put(std::move(handler));
    if (slot_.is_connected()) slot_.assign([this](asio::cancellation_type) { wake(); });
    auto expected = state::idle;
    if (!now_.compare_exchange_strong(expected, state::waiting)) post_resume();
  }

  /// Any thread. Call it without a lock that the waiting side takes: with one core, whoever is
  /// woken runs at once.
  void wake() noexcept {
    if (now_.exchange(state::woken) == state::waiting) post_resume();
  }

 private:
  enum class state : std::uint8_t { idle, waiting, woken };

  void post_resume() noexcept {
    const auto guard = waiter_registry::guard_context(home());
    if (!guard) return;
    post_(asio::query(executor_, asio::execution::context),
          [self = intrusive_ptr<pipe_waiter>(this)] { or_die([&] { self->resume(); }); });
  }
  /// A wake() that comes before this is answered by it: the waiter looks again.
  void resume() {
    now_.exchange(state::idle);
    if (!handler_) return;
    if (slot_.is_connected()) slot_.clear();
    handler_.resume(asio::query(executor_, asio::execution::context));
  }
  void abandon() noexcept override { handler_.drop(); }

  const asio::io_context::executor_type executor_;
  std::atomic<state> now_{state::idle};
  erased_handler<void()> handler_;  // touched by the io_context's thread only, as the next
  asio::cancellation_slot slot_;    // of that handler
  preallocated_post post_;
};

}  // namespace weft::detail
