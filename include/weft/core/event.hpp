// SPDX-License-Identifier: BSL-1.0
// One-shot event: set once from any thread, awaited by any number of coroutines.
#pragma once

#include <weft/core/intrusive_ptr.hpp>

#include <asio/awaitable.hpp>
#include <asio/error.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace weft {

/// Held by `intrusive_ptr`, because a waiter may be cancelled while the event is being set.
/// Coroutines that still wait are destroyed with their io_context. Thread safe.
///
///   auto ready = weft::make_intrusive<weft::event>();
///   co_await weft::event::wait(ready);  // one coroutine; another one, or a thread: ready->set()
class event : public ref_counted {
 public:
  ~event() override;

  /// Wakes all present and future waiters, in the order in which they came, each on its executor.
  /// Further calls do nothing.
  void set();
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }

  /// Completes with no error once the event is set, or with operation_aborted when cancelled.
  /// Cancelling concerns this wait only.
  template <class CompletionToken>
  static auto async_wait(intrusive_ptr<event> self, CompletionToken&& token);
  /// The same as a coroutine. Throws system_error operation_aborted.
  [[nodiscard]] static asio::awaitable<void> wait(intrusive_ptr<event> self);

 private:
  struct waiter;

  template <class Handler>
  void add(Handler handler);
  void drop(waiter& w, asio::error_code why);
  // Under the lock, while it is not set.
  void link(const intrusive_ptr<waiter>& w) noexcept;
  [[nodiscard]] intrusive_ptr<waiter> unlink(waiter& w) noexcept;

  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};  // written under the lock
  intrusive_ptr<waiter> first_;
  waiter* last_ = nullptr;
};

}  // namespace weft

#include <weft/core/impl/event.hpp>
#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/core/impl/event_once.hpp>
#endif
