// SPDX-License-Identifier: BSL-1.0
// One-shot event: set once from any thread, awaited by any number of coroutines.
#pragma once

#include <weft/core/detail/waiting_room.hpp>
#include <weft/core/ref.hpp>

#include <asio/append.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/error.hpp>
#include <asio/execution/context.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace weft {

/// Held by `ref`, because a waiter may be cancelled while the event is being set. Coroutines that
/// still wait are destroyed with their io_context.
class event : public ref_counted {
 public:
  /// Wakes all present and future waiters. Further calls do nothing.
  void set() {
    std::vector<ref<waiter>> woken;
    {
      const std::lock_guard lock(mutex_);
      if (set_) return;
      set_ = true;
      woken.swap(waiters_);
    }
    for (const auto& w : woken) w->complete({});
  }
  [[nodiscard]] bool is_set() const {
    const std::lock_guard lock(mutex_);
    return set_;
  }

  /// Completes with no error once the event is set, or with operation_aborted when cancelled.
  template <class CompletionToken>
  static auto async_wait(ref<event> self, CompletionToken&& token) {
    return asio::async_initiate<CompletionToken, void(asio::error_code)>(
        [](auto handler, ref<event> e) { e->add(std::move(handler)); }, token, std::move(self));
  }

 private:
  struct waiter : detail::guest {
    virtual void complete(asio::error_code ec) = 0;
    std::uint64_t key = 0;  // never used twice, unlike an address
    std::atomic<bool> over{false};
  };
  template <class Handler>
  struct waiting final : waiter {
    explicit waiting(Handler h) : handler(std::move(h)) {}
    void complete(asio::error_code ec) override {
      if (over.exchange(true)) return;
      leave();
      Handler mine = std::move(*handler);
      handler.reset();
      asio::post(asio::append(std::move(mine), ec));
    }
    void abandon() noexcept override {
      if (!over.exchange(true)) handler.reset();
    }
    std::optional<Handler> handler;
  };

  template <class Handler>
  void add(Handler handler) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    const auto executor = asio::get_associated_executor(handler);
    const auto w = make_ref<waiting<Handler>>(std::move(handler));
    std::uint64_t key = 0;
    bool set = false;
    {
      const std::lock_guard lock(mutex_);
      key = w->key = ++last_key_;
      set = set_;
      if (!set) {
        w->enter(asio::query(executor, asio::execution::context));
        waiters_.push_back(w);
      }
    }
    if (set) {
      w->complete({});
    } else if (slot.is_connected()) {
      slot.assign([self = ref<event>(this), key](asio::cancellation_type) { self->drop(key); });
    }
  }
  void drop(std::uint64_t key) {
    ref<waiter> dropped;
    {
      const std::lock_guard lock(mutex_);
      for (auto w = waiters_.begin(); w != waiters_.end(); ++w) {
        if ((*w)->key != key) continue;
        dropped = std::move(*w);
        waiters_.erase(w);
        break;
      }
    }
    if (dropped) dropped->complete(asio::error::operation_aborted);
  }

  mutable std::mutex mutex_;
  bool set_ = false;
  std::uint64_t last_key_ = 0;
  std::vector<ref<waiter>> waiters_;
};

}  // namespace weft
