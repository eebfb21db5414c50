// SPDX-License-Identifier: BSL-1.0
// Virtual time: events in the order of their times, and clocks that show the time.
#pragma once

#include <weft/core/detail/pairing_heap.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/time.hpp>

#include <asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace weft::sim {

/// `d * times / divisor`, also if `d * times` would overflow.
[[nodiscard]] constexpr duration part_of(duration d, std::int64_t times,
                                         std::int64_t divisor) noexcept {
  const std::int64_t rest = d.count() % divisor;
  return duration(d.count() / divisor * times + rest * times / divisor);
}

class timeline;

/// An event that happens at a time. Its destructor removes it from its timeline.
class moment : private weft::detail::heap_entry<moment> {
 public:
  explicit moment(timeline& of) noexcept : of_(of) {}
  [[nodiscard]] bool awaited() const noexcept { return linked(); }
  [[nodiscard]] time_point when() const noexcept { return when_; }

 protected:
  virtual ~moment();
  /// Runs when the time has come. The moment is no longer awaited then.
  virtual void comes() = 0;

 private:
  friend class timeline;
  template <class, class>
  friend class weft::detail::pairing_heap;
  timeline& of_;
  time_point when_{};
  std::uint64_t turn_ = 0;
};

/// The time of a world. It passes only here, from one moment to the next. Moments of equal time
/// come in the order in which they were added. One thread. Only a moment's own code can throw.
class timeline {
 public:
  /// A world begins at 1 s: zero means "not set".
  static constexpr time_point beginning{std::chrono::seconds(1)};

  [[nodiscard]] time_point now() const noexcept { return now_; }
  /// Adds a moment, or moves it to another time. A time before now counts as now.
  void add(moment& m, time_point when) noexcept {
    remove(m);
    m.when_ = std::max(when, now_);
    m.turn_ = ++last_turn_;
    waiting_.push(m);
  }
  void remove(moment& m) noexcept {
    if (m.linked()) waiting_.remove(m);
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// Requires !empty().
  [[nodiscard]] time_point next() const noexcept { return waiting_.top().when_; }
  /// Goes to the time of the next moment, and runs it. Requires !empty().
  void step() {
    moment& m = waiting_.top();
    waiting_.remove(m);
    now_ = std::max(now_, m.when_);
    m.comes();
  }
  /// Lets `d` pass. Moments that are due meanwhile come late.
  void pass(duration d) noexcept { now_ += d; }

 private:
  struct earlier {
    bool operator()(const moment& a, const moment& b) const noexcept {
      return a.when_ != b.when_ ? a.when_ < b.when_ : a.turn_ < b.turn_;
    }
  };
  weft::detail::pairing_heap<moment, earlier> waiting_;
  std::uint64_t last_turn_ = 0;
  time_point now_ = beginning;
};

inline moment::~moment() { of_.remove(*this); }

/// The clock of one machine. It may be fast or slow. It must outlive its timers.
class virtual_clock final : public clock {
 public:
  /// Shows `ppm` microseconds more in each second of the world.
  virtual_clock(timeline& of, std::int32_t ppm) noexcept : of_(of), ppm_(ppm) {}

  [[nodiscard]] timeline& source() const noexcept { return of_; }
  [[nodiscard]] time_point now() const noexcept override {
    return of_.now() + part_of(of_.now() - timeline::beginning, ppm_, 1'000'000);
  }
  /// The time of the world at which this clock shows `shown`, or a little later.
  [[nodiscard]] time_point in_world(time_point shown) const noexcept {
    if (shown <= now()) return of_.now();
    const duration ahead = shown - now();
    if (ahead > std::chrono::hours(24 * 365)) return later(of_.now(), ahead);
    return of_.now() + part_of(ahead, 1'000'000, 1'000'000 + ppm_) + duration(1);
  }
  [[nodiscard]] std::unique_ptr<timer> make_timer(asio::io_context& context) override {
    return std::make_unique<alarm_clock>(*this, context);
  }

 private:
  /// Rings inside its io_context, behind the handlers that are ready there, as a real timer does.
  class alarm_clock final : public timer, private moment {
   public:
    alarm_clock(virtual_clock& by, asio::io_context& context)
        : moment(by.of_), by_(by), context_(context) {}
    ~alarm_clock() override { cancel(); }
    void arm(time_point when, std::function<void()> alarm) override {
      cancel();
      alarm_ = std::move(alarm);
      when_ = when;
      by_.of_.add(*this, by_.in_world(when));
    }
    void cancel() override {
      ++*present_;
      by_.of_.remove(*this);
      alarm_ = nullptr;
    }

   private:
    void comes() override {
      if (by_.now() < when_) return by_.of_.add(*this, by_.in_world(when_));
      weft::detail::post_or_die(context_, [this, present = present_, mine = *present_] {
        if (*present == mine) std::exchange(alarm_, nullptr)();
      });
    }

    virtual_clock& by_;
    asio::io_context& context_;
    const std::shared_ptr<std::uint64_t> present_ = std::make_shared<std::uint64_t>(0);
    time_point when_{};
    std::function<void()> alarm_;
  };

  timeline& of_;
  const std::int32_t ppm_;
};

}  // namespace weft::sim
