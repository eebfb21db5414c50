// SPDX-License-Identifier: BSL-1.0
// The link to one peer: outbox, reading, reply slots. It knows no user types.
//
//            any thread                         I/O thread                  worker's thread
//   send ─► attach, frame ─► outbox ─► try_write ┐
//                              └─ blocked ─► writable, try_write …
//                          read ─► request ─┬─► light: here; plain: pool
//                                           └──────────────────────────► coroutine: serve
//                               ─► reply ──────────────────────────────► slot ─► caller resumes
//
// A link is idle until somebody sends, then connecting, up, and down for ever once it is lost.
// While it is connecting it tries again and again: a shortage, a pause, a refusal are no death.
#pragma once

#include <weft/core/event.hpp>
#include <weft/core/scope.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/detail/late_flush.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/slots.hpp>

#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace weft {

namespace detail {

void batch_ends(worker& here) noexcept;

/// Delays the writes of a worker's links to the end of a batch of handlers on this thread, so that
/// what they send goes out together; on the worker's own, where user code may take its time, `late`
/// sees to it that this is soon. Nested corks do nothing. Never held across co_await.
class cork {
 public:
  cork(worker& of, late_flush* late) noexcept
      : outermost_(current == nullptr), worker_(of), late_(outermost_ ? late : nullptr) {
    if (outermost_) current = this;
  }
  /// Has its services told when the batch that runs on this thread ends; false if there is none.
  [[nodiscard]] static bool hold(const worker& w) noexcept {
    if (!current || &current->worker_ != &w) return false;
    current->held_ = true;
    if (current->late_) {
      current->late_->hold(true);
      current->late_->watch();  // this handler may go on in user code
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
  void add(ref<link> l) {
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

  static thread_local cork* current;

 private:
  bool outermost_;
  worker& worker_;
  late_flush* late_;
  bool held_ = false;
  std::vector<ref<link>> dirty_;
};
inline thread_local cork* cork::current = nullptr;

}  // namespace detail

class invocation;

/// The requests that a link carried since it was made. Any thread.
struct request_counts {
  std::atomic<std::uint64_t> sent{0};      ///< raised before the request can arrive
  std::atomic<std::uint64_t> finished{0};  ///< raised after all that its function sent
};

/// What services and calls know of a link; `detail::live_link` is the only one, and named only
/// where a worker is made, so that a file with a call compiles none of its bodies.
class link : public ref_counted {
 public:
  enum class state : std::uint8_t { idle, connecting, up, down };

  [[nodiscard]] worker& self() const noexcept { return me_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] virtual state now() const = 0;
  /// Name of the transport, empty while not connected.
  [[nodiscard]] virtual std::string transport() const = 0;
  /// Why it is down.
  [[nodiscard]] virtual error reason() const = 0;

  // ── sending, any thread ──

  static constexpr std::uint64_t no_room = ~std::uint64_t{0};

  /// Lets services attach, frames the message and queues it; says the frame's number, or `no_room`
  /// if other threads took the room that a request had found. Whatever is thrown on the way is the
  /// error, which means not sent. `flush` follows.
  virtual expected<std::uint64_t> queue(message&& m, const frame_header& header) noexcept = 0;
  /// `queue`, then `flush`.
  expected<void> send(message&& m, const frame_header& header) noexcept {
    const auto queued = queue(std::move(m), header);
    if (!queued) return tl::unexpected(queued.error());
    flush();
    return {};
  }
  /// Queues a sealed frame without writing; a service may do so under its lock. False: link down.
  virtual bool append(frame&& f) = 0;
  /// Writes what can be written at once, or at the end of this thread's batch.
  virtual void flush() noexcept = 0;
  /// As flush, for a caller that goes on computing: the first frame of a turn is written now, what
  /// follows, and what joins calls under way, when the turn ends or goes on for long: 50 to 150 µs,
  /// behind many short turns up to 1.7 ms, and a time slice of its core if no other is free.
  virtual void flush_early() noexcept = 0;
  /// As flush_early, but also the first frame waits for company: until the turn ends, another frame
  /// is written, or that time has passed.
  virtual void flush_with_turn() noexcept = 0;
  /// As flush, for what nobody waits for: written with the next frame that somebody does wait for,
  /// or after that time.
  virtual void flush_late() noexcept = 0;
  /// Frames that wait to be written.
  [[nodiscard]] virtual std::size_t waiting() const = 0;

  /// Room for one more request, in the outbox and in the peer's window. False: there is none now.
  [[nodiscard]] virtual bool roomy() noexcept = 0;

  // ── calls, worker's thread ──

  [[nodiscard]] reply_slots& slots() noexcept { return slots_; }
  /// Waits in line until there is room. Errors, all not_sent: timed_out, cancelled, or the reason
  /// why the link is down.
  virtual asio::awaitable<expected<void>> room(time_point deadline) = 0;
  /// Somebody waits in line.
  [[nodiscard]] virtual bool crowded() const noexcept = 0;

  /// A request that came over this link is no longer served. Any thread.
  virtual void forget(invocation& call) noexcept = 0;

  /// The peer is lost. Any thread: closes the connection and stops reading at once; then, on the
  /// worker's thread, behind all that came before, calls fail and services are told.
  virtual void lose(error reason) noexcept = 0;
  /// Destroys the coroutines that wait for replies, without running them: they hold the link.
  void drop_calls() noexcept { slots_.drop_all(); }

  request_counts requests;

 protected:
  link(worker& me, std::uint32_t rank, timer_list& deadlines, reply_slots::gave_up gave_up)
      : me_(me), rank_(rank), slots_(deadlines, std::move(gave_up)) {}

  worker& me_;
  const std::uint32_t rank_;
  reply_slots slots_;  // worker's thread

 private:
  friend class detail::late_flush;
  std::atomic<bool> put_off_{false};  // in that list of late_flush; raised under its lock
};

namespace detail {
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
    std::vector<ref<link>> now;
    now.swap(dirty_);
    for (const ref<link>& l : now) l->flush();
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
  for (const ref<link>& l : all) l->flush();
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
inline bool late_flush::put_off(link& l) {
  if (!alarm_) return false;
  // What is to be written was pushed under the link's lock, and whoever resets this takes that lock
  // afterwards: it is seen there.
  if (l.put_off_.load(std::memory_order_relaxed)) return true;
  const std::lock_guard lock(mutex_);
  if (!l.put_off_.load(std::memory_order_relaxed)) put_off_.push_back(ref<link>(&l));
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
    for (const ref<link>& l : now) l->put_off_.store(false, std::memory_order_relaxed);
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
}  // namespace detail

}  // namespace weft
