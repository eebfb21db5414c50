// SPDX-License-Identifier: BSL-1.0
// Links that have something to write and are not flushed yet: by a turn of the worker's loop, whose
// end flushes them, and by whoever sends what nobody waits for. If the turn goes on, or nothing
// else is written meanwhile, another thread does it, soon.
#pragma once

#include <weft/core/ref.hpp>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace weft {
class link;
}

namespace weft::detail {

/// An alarm that any thread may set and clear, at the price of a system call each, and that rings
/// on a thread that never runs user code for long. Semantic duty: `arm` rings once, about 50 µs
/// later, unless `disarm` came first.
class flush_alarm {
 public:
  virtual ~flush_alarm() = default;
  virtual void arm() noexcept = 0;
  virtual void disarm() noexcept = 0;
};

class late_flush {
 public:
  /// Without an alarm only the turn's end flushes.
  explicit late_flush(flush_alarm* alarm) noexcept : alarm_(alarm) {}
  ~late_flush();

  /// The worker's thread. Does not throw if `reserve` made room.
  void add(ref<link> l) {
    const std::lock_guard lock(mutex_);
    dirty_.push_back(std::move(l));
    some_.store(true, std::memory_order_relaxed);
  }
  /// Any thread: nobody waits for what this link has to write. False, and no effect, if nothing
  /// would write it in time.
  [[nodiscard]] bool put_off(ref<link> l);
  /// The worker's thread: more user code is about to run before the turn ends.
  void watch() noexcept {
    if (!alarm_ || !some_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (!dirty_.empty()) arm();
  }
  /// The worker's thread, at the end of a turn. What was put off stays so, unless it went with what
  /// others wrote.
  void settle() {
    const bool put_off = any_put_off_.load(std::memory_order_relaxed);
    if (some_.load(std::memory_order_relaxed)) {
      flush();
    } else if (!put_off) {
      return;
    }
    if (put_off) forget_written();
    const std::lock_guard lock(mutex_);
    if (!armed_ || !dirty_.empty() || !put_off_.empty()) return;
    armed_ = false;
    alarm_->disarm();
  }
  /// The alarm's thread.
  void ring();

 private:
  void flush();
  void forget_written();
  static void flush_all(std::vector<ref<link>>& links);
  /// Under the lock.
  void arm() noexcept {
    if (!std::exchange(armed_, true)) alarm_->arm();
  }

  flush_alarm* const alarm_;
  std::mutex mutex_;  // guards the next group, and the alarm; links are told nothing under it
  std::vector<ref<link>> dirty_;
  std::vector<ref<link>> spare_;
  std::vector<ref<link>> put_off_;
  bool armed_ = false;
  std::atomic<bool> some_{false};         // in dirty_
  std::atomic<bool> any_put_off_{false};  // in put_off_
};

}  // namespace weft::detail
