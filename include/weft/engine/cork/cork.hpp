// SPDX-License-Identifier: BSL-1.0
// Room cork: many small writes become one. This file holds back what the handlers of one batch
// send; late_flush.hpp sees to it that this does not last, timer_alarm.hpp wakes it. Includes core/
// and rpc/.
#pragma once

#include <weft/config.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/cork/late_flush.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>

#include <utility>
#include <vector>

namespace weft::engine {

inline void batch_ends(weft::worker& here) noexcept {
  here.each_service([](service& s) { s.batch_ends(); });
}

/// Delays the writes of a worker's links to the end of a batch of handlers on this thread, so that
/// what they send goes out together; on the worker's own, where user code may take its time, `late`
/// sees to it that this is soon. Nested corks do nothing. Never held across co_await.
class cork {
 public:
  cork(weft::worker& of, late_flush* late) noexcept
      : outermost_(current == nullptr), worker_(of), late_(outermost_ ? late : nullptr) {
    if (outermost_) current = this;
  }
  /// The one on this thread, if it is of that worker: another one may be destroyed in a handler.
  [[nodiscard]] static cork* of(const weft::worker& w) noexcept {
    return current && &current->worker_ == &w ? current : nullptr;
  }
  /// Has its services told when the batch that runs on this thread ends; false if there is none.
  [[nodiscard]] static bool hold(const weft::worker& w) noexcept {
    cork* const here = of(w);
    if (!here) return false;
    here->held_ = true;
    if (here->late_) {
      here->late_->hold(true);
      here->late_->watch();  // this handler may go on in user code
    }
    return true;
  }
  cork(const cork&) = delete;
  cork& operator=(const cork&) = delete;
  ~cork();
  /// Writes now what was delayed so far.
  void flush();
  /// Before each handler.
  void before_handler() noexcept {
    if (late_) late_->watch();
  }
  void add(intrusive_ptr<weft::link> l) {
    if (late_) {
      late_->add(std::move(l));
    } else {
      dirty_.push_back(std::move(l));
    }
  }
  /// What a link remembers of being in this list.
  [[nodiscard]] const void* key() const noexcept {
    return late_ ? static_cast<const void*>(late_) : this;
  }

  WEFT_PROCESS_WIDE static thread_local cork* current;

 private:
  bool outermost_;
  weft::worker& worker_;
  late_flush* late_;
  bool held_ = false;
  std::vector<intrusive_ptr<weft::link>> dirty_;
};
inline thread_local cork* cork::current = nullptr;

inline cork::~cork() {
  if (!outermost_) return;
  current = nullptr;
  flush();
}
inline void cork::flush() {
  cork* const self = std::exchange(current, nullptr);
  if (std::exchange(held_, false)) {
    if (late_) late_->hold(false);
    batch_ends(worker_);
  }
  if (late_) late_->settle();
  while (!dirty_.empty()) {
    std::vector<intrusive_ptr<weft::link>> now;
    now.swap(dirty_);
    for (const intrusive_ptr<weft::link>& l : now) l->flush();
    if (dirty_.empty()) {  // keep the allocation
      now.clear();
      dirty_.swap(now);
    }
  }
  current = self;
}
inline late_flush::~late_flush() = default;
inline void late_flush::flush_all(links& all) {
  cork* const outer = std::exchange(cork::current, nullptr);
  for (const intrusive_ptr<weft::link>& l : all) l->flush();
  cork::current = outer;
  all.clear();
}
inline void late_flush::flush(links& spare) {
  links now = std::move(spare);  // its memory, for the next turns
  {
    const std::lock_guard lock(mutex_);
    now.swap(dirty_);
    some_.store(false, std::memory_order_relaxed);
  }
  flush_all(now);
  spare = std::move(now);
}
inline bool late_flush::put_off(weft::link& l) {
  if (!alarm_) return false;
  // What is to be written was pushed under the link's lock, and whoever resets this takes that lock
  // afterwards: it is seen there.
  if (l.put_off_.load(std::memory_order_relaxed)) return true;
  const std::lock_guard lock(mutex_);
  if (!l.put_off_.load(std::memory_order_relaxed))
    put_off_.push_back(intrusive_ptr<weft::link>(&l));
  l.put_off_.store(true, std::memory_order_relaxed);
  arm();
  return true;
}
inline bool late_flush::ring() {
  links now;
  bool late = false;
  bool seldom = false;
  {
    const std::lock_guard lock(mutex_);
    now.swap(put_off_);
    for (const intrusive_ptr<weft::link>& l : now)
      l->put_off_.store(false, std::memory_order_relaxed);
    const std::uint64_t turns = turns_.load(std::memory_order_relaxed);
    const bool go_on = turns != std::exchange(turns_seen_, turns);
    late = !go_on || (!dirty_.empty() && time_.now() - since_ >= first_look);
    armed_ = go_on;  // else what is added later sets it anew
    if (go_on) alarm_->arm(look_ = std::min(2 * look_, last_look));
    seldom = go_on && look_ == last_look;
  }
  if (late) flush(rung_);  // else the running turn has only begun
  flush_all(now);
  alarm_->give_way(seldom);
  return late && held_.exchange(false);
}

}  // namespace weft::engine
