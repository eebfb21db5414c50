// SPDX-License-Identifier: BSL-1.0
// A clock that stands still until the test moves it.
#pragma once

#include <weft/core/time.hpp>

#include <asio/io_context.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace weft::testing {

class manual_clock final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] std::unique_ptr<timer> make_timer(asio::io_context&) override {
    return std::make_unique<manual_timer>(*this);
  }
  /// Moves on and rings every alarm that is due, the earliest first.
  void advance(duration by) {
    const time_point until = now_ + by;
    for (;;) {
      manual_timer* next = nullptr;
      for (manual_timer* t : timers_) {
        if (t->alarm && t->when <= until && (!next || t->when < next->when)) next = t;
      }
      if (!next) break;
      if (next->when > now_) now_ = next->when;
      std::exchange(next->alarm, nullptr)();
    }
    now_ = until;
  }
  /// How often an alarm was set.
  [[nodiscard]] int armed() const noexcept { return armed_; }

 private:
  struct manual_timer final : timer {
    explicit manual_timer(manual_clock& c) : owner(c) { owner.timers_.push_back(this); }
    ~manual_timer() override { std::erase(owner.timers_, this); }
    void arm(time_point at, std::function<void()> what) override {
      when = at;
      alarm = std::move(what);
      ++owner.armed_;
    }
    void cancel() override { alarm = nullptr; }
    manual_clock& owner;
    time_point when{};
    std::function<void()> alarm;
  };

  time_point now_{};
  std::vector<manual_timer*> timers_;
  int armed_ = 0;
};

}  // namespace weft::testing
