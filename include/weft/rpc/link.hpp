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
#pragma once

#include <weft/core/event.hpp>
#include <weft/core/scope.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/slots.hpp>

#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace weft {

namespace detail {

/// Delays the writes of links to the end of a batch of handlers on this thread, so that what they
/// send goes out together. Nested corks do nothing. Never held across co_await.
class cork {
 public:
  cork() noexcept : outermost_(current == nullptr) {
    if (outermost_) current = this;
  }
  cork(const cork&) = delete;
  cork& operator=(const cork&) = delete;
  ~cork();
  /// Writes now what was delayed so far.
  void flush();
  void add(ref<link> l) { dirty_.push_back(std::move(l)); }

  static thread_local cork* current;

 private:
  bool outermost_;
  std::vector<ref<link>> dirty_;
};
inline thread_local cork* cork::current = nullptr;

}  // namespace detail

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

  /// Lets services attach, frames the message, queues and writes it. An error means not sent.
  virtual expected<void> send(message&& m, const frame_header& header) = 0;
  /// Queues a sealed frame without writing; a service may do so under its lock. False: link down.
  virtual bool append(frame&& f) = 0;
  /// Writes what can be written at once.
  virtual void flush() = 0;
  /// Frames that wait to be written.
  [[nodiscard]] virtual std::size_t waiting() const = 0;
  [[nodiscard]] bool full() const noexcept { return full_.load(std::memory_order_relaxed); }

  // ── calls, worker's thread ──

  /// Sends a request and completes with its reply, by `deadline`. Signature void(call_result).
  template <class CompletionToken>
  auto exchange(message&& m, frame_header header, time_point deadline, CompletionToken&& token) {
    return asio::async_initiate<CompletionToken, void(call_result)>(
        [](auto handler, ref<link> self, message* out, frame_header h, time_point when) {
          h.call = self->slots_.add(std::move(handler), when);
          self->sent_request(std::move(*out), h);
        },
        token, ref<link>(this), &m, header, deadline);
  }
  /// Waits until the outbox has room; timed_out or the reason why the link is down otherwise.
  virtual asio::awaitable<expected<void>> room(time_point deadline) = 0;

  /// The peer is lost: fails every call, tells the services, closes the connection.
  virtual void lose(error reason) = 0;
  /// Destroys the coroutines that wait for replies, without running them: they hold the link.
  void drop_calls() noexcept { slots_.drop_all(); }

  request_counts requests;

 protected:
  link(worker& me, std::uint32_t rank, timer_list& deadlines, reply_slots::gave_up gave_up)
      : me_(me), rank_(rank), slots_(deadlines, std::move(gave_up)) {}

  /// Sends the request whose slot is taken; fails the slot, later, if it cannot.
  virtual void sent_request(message&& m, const frame_header& header) = 0;

  worker& me_;
  const std::uint32_t rank_;
  std::atomic<bool> full_{false};
  reply_slots slots_;  // worker's thread
};

namespace detail {
inline cork::~cork() {
  if (!outermost_) return;
  current = nullptr;
  flush();
}
inline void cork::flush() {
  while (!dirty_.empty()) {
    std::vector<ref<link>> now;
    now.swap(dirty_);
    cork* const self = std::exchange(current, nullptr);
    for (const ref<link>& l : now) l->flush();
    current = self;
    if (dirty_.empty()) {  // keep the allocation
      now.clear();
      dirty_.swap(now);
    }
  }
}
}  // namespace detail

}  // namespace weft
