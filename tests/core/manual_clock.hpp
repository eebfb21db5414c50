// SPDX-License-Identifier: BSL-1.0
// A clock that stands still until the test moves it. Its alarms ring as the machine's do: inside
// their io_context, behind what waits there already.
#pragma once

#include <weft/core/time.hpp>

#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace weft::testing {

class manual_clock final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] std::unique_ptr<timer> make_timer(asio::io_context& context) override {
    return std::make_unique<manual_timer>(*this, context);
  }
  /// Moves on; every alarm that is due rings at its time, the earliest first, each with all that
  /// its io_context can do then.
  void advance(duration by) {
    const time_point until = now_ + by;
    // bounded: alarms that are set for no later than `until` for ever are the test's mistake
    while (manual_timer* next = due(until)) {
      if (next->when > now_) now_ = next->when;
      asio::io_context& context = next->context;
      next->queue();
      context.restart();
      context.poll();
    }
    now_ = until;
  }
  /// Moves on and queues every alarm that is due, without running any: what is queued behind them
  /// in the same turn of the loop comes after them, what was queued before comes first.
  void expire(duration by) {
    now_ += by;
    // bounded: each turn takes one alarm
    while (manual_timer* next = due(now_)) next->queue();
  }
  /// How often an alarm was set.
  [[nodiscard]] int armed() const noexcept { return armed_; }

 private:
  struct manual_timer final : timer {
    manual_timer(manual_clock& c, asio::io_context& io) : owner(c), context(io) {
      owner.timers_.push_back(this);
    }
    ~manual_timer() override {
      cancel();
      std::erase(owner.timers_, this);
    }
    void arm(time_point at, std::function<void()> what) override {
      ++*present;
      when = at;
      alarm = std::move(what);
      ++owner.armed_;
    }
    void cancel() override {
      ++*present;
      alarm = nullptr;
    }
    void queue() {
      asio::post(context,
                 [present = present, mine = *present, what = std::exchange(alarm, nullptr)] {
                   if (*present == mine) what();
                 });
    }
    manual_clock& owner;
    asio::io_context& context;
    const std::shared_ptr<std::uint64_t> present = std::make_shared<std::uint64_t>(0);
    time_point when{};
    std::function<void()> alarm;
  };

  [[nodiscard]] manual_timer* due(time_point until) const {
    manual_timer* first = nullptr;
    for (manual_timer* t : timers_) {
      if (t->alarm && t->when <= until && (!first || t->when < first->when)) first = t;
    }
    return first;
  }

  time_point now_{};
  std::vector<manual_timer*> timers_;
  int armed_ = 0;
};

}  // namespace weft::testing
