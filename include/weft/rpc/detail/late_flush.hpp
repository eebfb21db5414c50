// SPDX-License-Identifier: BSL-1.0
// Links that a turn of the worker's loop wrote to and has not flushed. The turn's end flushes them;
// if the turn goes on, another thread does, soon.
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
  /// The worker's thread: more user code is about to run before the turn ends.
  void watch() noexcept {
    if (!alarm_ || !some_.load(std::memory_order_relaxed)) return;
    if (!armed_.exchange(true)) alarm_->arm();
  }
  /// The worker's thread, at the end of a turn.
  void settle() {
    if (armed_.load(std::memory_order_relaxed) && armed_.exchange(false)) alarm_->disarm();
    if (some_.load(std::memory_order_relaxed)) flush();
  }
  /// The alarm's thread.
  void ring() {
    armed_.store(false);  // before it looks: what is added later sets the alarm anew
    flush();
  }

 private:
  void flush();

  flush_alarm* const alarm_;
  std::mutex mutex_;
  std::vector<ref<link>> dirty_;
  std::vector<ref<link>> spare_;
  std::atomic<bool> some_{false};
  std::atomic<bool> armed_{false};
};

}  // namespace weft::detail
