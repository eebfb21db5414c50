// SPDX-License-Identifier: BSL-1.0
// Coroutines that wait for their turn, first come, first served.
#pragma once

#include <weft/core/event.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>

#include <asio/as_tuple.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::detail {

/// On one thread, but for `empty`. Leaving costs O(1) wherever one stands.
class waiting_line {
 public:
  /// When somebody came first. Who comes back with it, because others took what it had waited for,
  /// stands before all who came later.
  class ticket {
    friend class waiting_line;
    std::uint64_t number_ = 0;  // none yet
  };

  /// A place in the line; lives in the waiting coroutine's frame. Whoever stands behind it is told
  /// when it leaves.
  class place final : public deadline_entry {
   public:
    place(waiting_line& line, timer_list& deadlines, time_point deadline, ticket& mine)
        : line_(line), deadlines_(deadlines) {
      deadlines_.add(*this, deadline);
      if (mine.number_ == 0) {
        mine.number_ = ++line_.turns_;
        before_ = line_.last_;
      } else {  // only others that came back stand before it
        for (place* p = line_.first_; p && p->number_ < mine.number_; p = p->behind_) before_ = p;
      }
      number_ = mine.number_;
      behind_ = before_ ? before_->behind_ : line_.first_;
      (before_ ? before_->behind_ : line_.first_) = this;
      (behind_ ? behind_->before_ : line_.last_) = this;
      line_.size_.fetch_add(1, std::memory_order_relaxed);
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() override {
      deadlines_.remove(*this);
      (before_ ? before_->behind_ : line_.first_) = behind_;
      (behind_ ? behind_->before_ : line_.last_) = before_;
      line_.size_.fetch_sub(1, std::memory_order_relaxed);
      line_.wake_first();
    }
    [[nodiscard]] bool is_first() const noexcept { return !before_; }
    [[nodiscard]] bool late() const noexcept { return late_; }
    /// Until something may have changed. False: the wait was cancelled.
    [[nodiscard]] asio::awaitable<bool> changed() {
      wake_ = make_intrusive<event>();
      const auto [ec] = co_await event::async_wait(wake_, asio::as_tuple(asio::use_awaitable));
      // Cancelled when it had been woken already: whoever goes on would throw where it waits next.
      const auto state = co_await asio::this_coro::cancellation_state;
      co_return !ec && state.cancelled() == asio::cancellation_type::none;
    }

   private:
    friend class waiting_line;
    void expired() override {
      late_ = true;
      wake();
    }
    void wake() noexcept {
      if (wake_) wake_->set();
    }

    waiting_line& line_;
    timer_list& deadlines_;
    place* before_ = nullptr;
    place* behind_ = nullptr;
    std::uint64_t number_ = 0;
    intrusive_ptr<event> wake_;
    bool late_ = false;
  };

  /// Any thread.
  [[nodiscard]] bool empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }
  void wake_first() noexcept {
    if (first_) first_->wake();
  }
  void wake_all() noexcept {
    for (place* p = first_; p; p = p->behind_) p->wake();
  }

 private:
  place* first_ = nullptr;
  place* last_ = nullptr;
  std::uint64_t turns_ = 0;
  std::atomic<std::size_t> size_{0};
};

}  // namespace weft::detail
