// SPDX-License-Identifier: BSL-1.0
// Links that have something to write and are not flushed yet: by a turn of the worker's loop, whose
// end flushes them, and by whoever sends what nobody waits for. If the turn goes on, or nothing
// else is written meanwhile, another thread does it, soon.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/link.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::engine {

/// An alarm that any thread may set, at the price of a system call, and that rings on a thread that
/// never runs user code for long. Semantic duty: `arm` rings once, about so long after.
class flush_alarm {
 public:
  virtual ~flush_alarm() = default;
  virtual void arm(std::chrono::microseconds after) noexcept = 0;
  /// On the alarm's thread: whether it may wait until a core is free, rather than interrupt.
  virtual void give_way(bool) noexcept {}
};

/// Setting a timer costs as much as a call, so it is not set anew for each turn: it rings on while
/// turns end in time by themselves, ever more seldom, and stops when there are no more turns. Each
/// ring that interrupts a turn breaks up what goes out together, so at last it gives way.
class late_flush {
 public:
  /// Without an alarm only the turn's end flushes.
  late_flush(flush_alarm* alarm, const clock& time) noexcept : alarm_(alarm), time_(time) {}
  ~late_flush();

  /// The worker's thread.
  void add(intrusive_ptr<weft::link> l) {
    const std::lock_guard lock(mutex_);
    if (dirty_.empty()) since_ = time_.now();
    dirty_.push_back(std::move(l));
    some_.store(true, std::memory_order_relaxed);
  }
  /// Any thread: nobody waits for what this link has to write. False, and no effect, if nothing
  /// would write it in time.
  [[nodiscard]] bool put_off(weft::link& l);
  /// The worker's thread: services too hold something back (`cork::hold`), or no longer do.
  void hold(bool now) noexcept { held_.store(now, std::memory_order_relaxed); }
  /// The worker's thread: more user code is about to run before the turn ends.
  void watch() noexcept {
    const bool held = held_.load(std::memory_order_relaxed);
    if (!alarm_ || !(held || some_.load(std::memory_order_relaxed))) return;
    // If it is set now, it rings behind what was added before, or it would be seen to be clear.
    if (armed_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (held || !dirty_.empty()) arm();
  }
  /// The worker's thread: until `end_turn`, batches within the turn write nothing by themselves.
  void begin_turn() noexcept { in_turn_ = true; }
  [[nodiscard]] bool in_turn() const noexcept { return in_turn_; }
  void end_turn() {
    in_turn_ = false;
    settle();
  }
  /// The worker's thread, at the end of a batch, or of a turn. What was put off stays so.
  void settle() {
    if (in_turn_) return watch();  // what others do before its end may take long
    turns_.fetch_add(1, std::memory_order_relaxed);
    if (some_.load(std::memory_order_relaxed)) flush(settled_);
  }
  /// The alarm's thread. True: services must be told, as at the end of a batch.
  [[nodiscard]] bool ring();

 private:
  static constexpr std::chrono::microseconds first_look{50};
  static constexpr std::chrono::microseconds last_look{1600};

  using links = std::vector<intrusive_ptr<weft::link>>;
  void flush(links& spare);
  static void flush_all(links& all);
  /// Under the lock.
  void arm() noexcept {
    if (!armed_.exchange(true)) alarm_->arm(look_ = first_look);
  }

  flush_alarm* const alarm_;
  const clock& time_;
  bool in_turn_ = false;  // worker's thread
  std::mutex mutex_;      // guards the next group, and the alarm; links are told nothing under it
  links dirty_;
  time_point since_;  // the first of them was added
  links put_off_;
  std::atomic<bool> armed_{false};
  std::chrono::microseconds look_ = first_look;  // after which the alarm rings
  std::uint64_t turns_seen_ = 0;                 // when it rang
  std::atomic<std::uint64_t> turns_{0};          // that ended
  std::atomic<bool> some_{false};                // in dirty_
  std::atomic<bool> held_{false};                // by services
  links settled_;                                // of the worker's thread, empty: memory
  links rung_;                                   // of the alarm's
};

}  // namespace weft::engine
