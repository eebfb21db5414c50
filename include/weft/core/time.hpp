// SPDX-License-Identifier: BSL-1.0
// Time: a clock that a simulator can own, and many deadlines over one timer.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace weft {

using time_point = std::chrono::steady_clock::time_point;
using duration = std::chrono::steady_clock::duration;

/// One alarm at a time. `arm` replaces an earlier alarm; destruction cancels.
class timer {
 public:
  virtual ~timer() = default;
  /// `alarm` runs once on the timer's io_context at `when`, unless replaced or destroyed before.
  virtual void arm(time_point when, std::function<void()> alarm) = 0;
  virtual void cancel() = 0;
};

/// Where a worker's time comes from. Thread safe.
class clock {
 public:
  virtual ~clock() = default;
  [[nodiscard]] virtual time_point now() const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<timer> make_timer(asio::io_context& context) = 0;
};

/// The machine's monotonic clock. A template only so that it is compiled where one is made.
template <class = void>
class basic_real_clock final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override {
    return std::chrono::steady_clock::now();
  }
  [[nodiscard]] std::unique_ptr<timer> make_timer(asio::io_context& context) override {
    return std::make_unique<asio_timer>(context);
  }

 private:
  class asio_timer final : public timer {
   public:
    explicit asio_timer(asio::io_context& context) : timer_(context) {}
    void arm(time_point when, std::function<void()> alarm) override {
      timer_.expires_at(when);
      timer_.async_wait([alarm = std::move(alarm)](const asio::error_code& ec) {
        if (!ec) alarm();
      });
    }
    void cancel() override { timer_.cancel(); }

   private:
    asio::steady_timer timer_;
  };
};
using real_clock = basic_real_clock<>;

/// A point in time with something to do; the base of whatever waits in a `timer_list`.
class timed {
 public:
  timed() = default;
  timed(const timed&) = delete;
  timed& operator=(const timed&) = delete;
  [[nodiscard]] time_point when() const noexcept { return when_; }
  [[nodiscard]] bool listed() const noexcept { return next_ != nullptr; }

 protected:
  virtual ~timed() = default;
  virtual void expired() = 0;

 private:
  friend class timer_list;
  time_point when_{};
  timed* previous_ = nullptr;
  timed* next_ = nullptr;
};

/// Many deadlines in one sorted list over one timer. Most deadlines come in order, so insertion
/// looks from the back. All members run on the context's thread.
class timer_list {
 public:
  timer_list(clock& time, asio::io_context& context)
      : clock_(time), timer_(time.make_timer(context)) {
    ring_.previous_ = ring_.next_ = &ring_;
  }
  timer_list(const timer_list&) = delete;
  timer_list& operator=(const timer_list&) = delete;
  ~timer_list() {
    while (ring_.next_ != &ring_) remove(*ring_.next_);
  }

  void add(timed& item, time_point when) {
    item.when_ = when;
    timed* after = ring_.previous_;
    while (after != &ring_ && after->when_ > when) after = after->previous_;
    item.previous_ = after;
    item.next_ = after->next_;
    after->next_->previous_ = &item;
    after->next_ = &item;
    if (!armed_ || when < armed_for_) arm(when);
  }
  void remove(timed& item) noexcept {
    if (!item.listed()) return;
    item.previous_->next_ = item.next_;
    item.next_->previous_ = item.previous_;
    item.previous_ = item.next_ = nullptr;
  }
  /// Forgets the alarm, so that an empty list keeps no io_context alive.
  void stop() {
    timer_->cancel();
    armed_ = false;
  }
  [[nodiscard]] bool empty() const noexcept { return ring_.next_ == &ring_; }
  [[nodiscard]] clock& source() const noexcept { return clock_; }

 private:
  void arm(time_point when) {
    armed_ = true;
    armed_for_ = when;
    timer_->arm(when, [this] { ring_out(); });
  }
  void ring_out() {
    armed_ = false;
    const time_point now = clock_.now();
    while (ring_.next_ != &ring_ && ring_.next_->when_ <= now) {
      timed& due = *ring_.next_;
      remove(due);
      due.expired();
    }
    if (!armed_ && ring_.next_ != &ring_) arm(ring_.next_->when_);
  }

  clock& clock_;
  std::unique_ptr<timer> timer_;
  struct sentinel final : timed {
    void expired() override {}
  } ring_;
  bool armed_ = false;
  time_point armed_for_{};
};

}  // namespace weft
