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
  /// Memory for one wait. What an initiation throws ends its io_context, not the coroutine that
  /// waits: so it is taken before.
  class seat {
   public:
    /// Throws std::bad_alloc.
    [[nodiscard]] static seat reserve() { return seat(::operator new(size)); }
    seat() noexcept = default;  // the wait looks for memory itself
    seat(seat&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
    seat& operator=(seat&& other) noexcept {
      std::swap(block_, other.block_);
      return *this;
    }
    ~seat() { ::operator delete(block_); }

   private:
    friend class event;
    static constexpr std::size_t size = 336;  // of one who waits
    explicit seat(void* block) noexcept : block_(block) {}
    void* block_ = nullptr;
  };

  ~event() override;

  /// Wakes all present and future waiters, in the order in which they came, each on its executor.
  /// Further calls do nothing. Needs no memory for those who wait on an io_context.
  void set();
  [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }

  /// Completes with no error once the event is set, with operation_aborted when cancelled, or with
  /// no_memory if there is none to be cancelled. Throws std::bad_alloc before it waits. Cancelling
  /// concerns this wait only.
  template <class CompletionToken>
  static auto async_wait(intrusive_ptr<event> self, CompletionToken&& token,
                         seat place = seat::reserve());
  /// The same as a coroutine. Its memory is taken by this call, so one that is kept can be awaited
  /// later, once, whatever lacks then. Throws std::bad_alloc, or system_error operation_aborted.
  [[nodiscard]] static asio::awaitable<void> wait(intrusive_ptr<event> self);

 private:
  struct waiter;

  template <class Waiting>
  static asio::awaitable<void> finish(Waiting waiting);
  template <class Handler>
  void add(Handler handler, seat place);
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
