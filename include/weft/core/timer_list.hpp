// SPDX-License-Identifier: BSL-1.0
// Many deadlines over one timer.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/pairing_heap.hpp>
#include <weft/core/time.hpp>

#include <cstdint>
#include <memory>

namespace weft {

/// Base of the entries of a `timer_list`: a point in time with something to do. An entry must leave
/// its list before it is destroyed.
class deadline_entry : private detail::heap_entry<deadline_entry> {
 public:
  deadline_entry() = default;
  [[nodiscard]] time_point when() const noexcept { return when_; }
  [[nodiscard]] bool listed() const noexcept { return linked(); }

 protected:
  virtual ~deadline_entry() = default;
  /// Runs once, when the entry is no longer listed. It may add and remove entries, itself included.
  virtual void expired() = 0;

 private:
  friend class timer_list;
  template <class, class>
  friend class detail::pairing_heap;
  time_point when_{};
  std::uint64_t turn_ = 0;  // which was added first
};

/// Many deadlines over one timer. Adding takes constant time, removing O(log n), usually less;
/// neither allocates. Equal deadlines ring in the order in which they were added. Call all members
/// on the context's thread.
///
///   struct late : weft::deadline_entry { void expired() override { ... } };
///   list.add(entry, until), list.remove(entry);
class timer_list {
 public:
  timer_list(clock& time, asio::io_context& context)
      : clock_(time), timer_(time.make_timer(context)) {}
  timer_list(const timer_list&) = delete;
  timer_list& operator=(const timer_list&) = delete;

  /// Requires !item.listed().
  void add(deadline_entry& item, time_point when) {
    item.when_ = when;
    item.turn_ = ++last_turn_;
    waiting_.push(item);
    if (ringing_ || (armed_ && when >= armed_for_)) return;
    arm(when);
  }
  /// Does nothing if `item` is not listed. Its `expired` does not run any more.
  void remove(deadline_entry& item) noexcept {
    if (item.listed()) waiting_.remove(item);
  }
  /// Forgets the alarm, so that an empty list keeps no io_context alive.
  void stop() {
    timer_->cancel();
    armed_ = false;
  }
  /// Nothing rings any more, for ever; entries that are added later do not ring either.
  void close() {
    stop();
    closed_ = true;
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  [[nodiscard]] clock& source() const noexcept { return clock_; }

 private:
  struct earlier {
    bool operator()(const deadline_entry& a, const deadline_entry& b) const noexcept {
      return a.when_ != b.when_ ? a.when_ < b.when_ : a.turn_ < b.turn_;
    }
  };
  /// While entries ring, the alarm is not set. It is set once all have rung, or one has thrown.
  struct ringing {
    explicit ringing(timer_list& l) : list(l) { list.ringing_ = true; }
    ~ringing() noexcept(false) {
      list.ringing_ = false;
      if (!list.empty()) list.arm(list.waiting_.top().when_);
    }
    timer_list& list;
  };

  void arm(time_point when) {
    if (closed_) return;
    timer_->arm(when, detail::dies([this] { ring_out(); }));
    armed_ = true;
    armed_for_ = when;
  }
  void ring_out();

  clock& clock_;
  std::unique_ptr<timer> timer_;
  detail::pairing_heap<deadline_entry, earlier> waiting_;
  std::uint64_t last_turn_ = 0;
  bool armed_ = false;
  bool ringing_ = false;
  bool closed_ = false;
  time_point armed_for_{};
};

inline void timer_list::ring_out() {
  armed_ = false;
  const ringing all(*this);
  const time_point now = clock_.now();
  while (!empty() && waiting_.top().when_ <= now) {
    deadline_entry& due = waiting_.top();
    waiting_.remove(due);
    due.expired();
  }
}

}  // namespace weft
