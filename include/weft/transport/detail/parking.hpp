// SPDX-License-Identifier: BSL-1.0
// Where one coroutine waits until any thread wakes it: for transports without a descriptor.
#pragma once

#include <weft/core/detail/sure_post.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/any_completion_handler.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/dispatch.hpp>
#include <asio/execution_context.hpp>
#include <asio/io_context.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weft::detail {

class parking;

/// The parkings of one io_context, so that it destroys coroutines that still wait in it when it
/// is destroyed, as it does with its own operations.
struct parking_lot {
  std::mutex lock;
  std::unordered_set<parking*> spaces;
};

class parking_service : public asio::execution_context::service {
 public:
  using key_type = parking_service;
  inline static asio::execution_context::id id;

  explicit parking_service(asio::execution_context& context)
      : service(context), lot(std::make_shared<parking_lot>()) {}
  void shutdown() override;

  const std::shared_ptr<parking_lot> lot;
};

/// One waits at a time. May outlive its io_context: then nothing happens.
class parking : public ref_counted {
 public:
  explicit parking(asio::io_context& io)
      : executor_(io.get_executor()), lot_(asio::use_service<parking_service>(io).lot) {
    std::lock_guard hold(lot_->lock);
    lot_->spaces.insert(this);
  }
  ~parking() override {
    std::lock_guard hold(lot_->lock);
    lot_->spaces.erase(this);
  }

  /// The io_context's thread. Ends after the next wake(), at once if one came since the last wait.
  /// Throws rpc_error: cancelled.
  [[nodiscard]] asio::awaitable<void> wait() {
    co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
        [this](auto handler) { park(std::move(handler)); }, asio::use_awaitable);
    const auto cancellation = co_await asio::this_coro::cancellation_state;
    if (cancellation.cancelled() != asio::cancellation_type::none) {
      throw rpc_error(errc::cancelled, "the wait was cancelled", call_progress::maybe_executed);
    }
  }

  /// Any thread. Call it without a lock that the waiting side takes: with one core, whoever is
  /// woken runs at once.
  void wake() noexcept {
    waking_.fetch_add(1);
    if (!orphaned_.load() && now_.exchange(state::woken) == state::waiting) post_resume();
    waking_.fetch_sub(1);
  }

 private:
  friend class parking_service;
  enum class state : std::uint8_t { idle, waiting, woken };

  void park(asio::any_completion_handler<void()> handler) {
    handler_ = std::move(handler);
    auto cancelled = asio::get_associated_cancellation_slot(handler_);
    if (cancelled.is_connected()) {
      cancelled.assign([this](asio::cancellation_type) { wake(); });
    }
    auto expected = state::idle;
    if (!now_.compare_exchange_strong(expected, state::waiting)) post_resume();
  }
  void post_resume() noexcept {
    post_(executor_.context(), [self = intrusive_ptr<parking>(this)] { self->resume(); });
  }
  /// A wake() that comes before this is answered by it: the waiter looks again.
  void resume() {
    now_.exchange(state::idle);
    if (!handler_) return;
    if (auto cancelled = asio::get_associated_cancellation_slot(handler_);
        cancelled.is_connected()) {
      cancelled.clear();
    }
    asio::dispatch(std::move(handler_));
  }
  /// No wake() touches the io_context after this returned.
  [[nodiscard]] asio::any_completion_handler<void()> orphan() {
    orphaned_.store(true);
    while (waking_.load() != 0) std::this_thread::yield();
    return std::move(handler_);
  }

  const asio::io_context::executor_type executor_;
  const std::shared_ptr<parking_lot> lot_;
  std::atomic<state> now_{state::idle};
  std::atomic<bool> orphaned_{false};
  std::atomic<int> waking_{0};
  sure_post post_;
  asio::any_completion_handler<void()> handler_;  // touched by the io_context's thread only
};

inline void parking_service::shutdown() {
  std::vector<asio::any_completion_handler<void()>> waiting;  // dies last: it may own parkings
  std::lock_guard hold(lot->lock);
  for (parking* space : lot->spaces) waiting.push_back(space->orphan());
}

}  // namespace weft::detail
