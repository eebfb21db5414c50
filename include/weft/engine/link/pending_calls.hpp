// SPDX-License-Identifier: BSL-1.0
// Callers that wait for replies. A call id is (index, generation); generations count per link, so
// that a damaged or late id never finds another call's slot. Used on the worker's thread only.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rpc/reply.hpp>

#include <asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::engine {

class pending_calls final : public reply_line {
 public:
  /// Called when a call gives up (deadline or cancellation), with the number of its frame: tells
  /// the peer, and says how far the call got.
  using gave_up = std::function<call_progress(std::uint64_t call, std::uint64_t frame)>;

  /// `here` is the loop of the worker's thread.
  pending_calls(asio::io_context& here, timer_list& deadlines, gave_up on_give_up)
      : here_(here), deadlines_(deadlines), gave_up_(std::move(on_give_up)) {}
  pending_calls(const pending_calls&) = delete;
  pending_calls& operator=(const pending_calls&) = delete;
  ~pending_calls() { drop_all(); }

  /// A slot for a request that is about to be sent; returns the call id. `async_wait` or `close`
  /// must follow before the worker's thread does anything else.
  [[nodiscard]] std::uint64_t open(time_point deadline) {
    slot& s = take();
    deadlines_.add(s, deadline);
    return s.id();
  }
  /// The request was not sent.
  void close(std::uint64_t call) noexcept {
    slot& s = at(call);
    deadlines_.remove(s);
    free_.push_back(s.index);
  }
  [[nodiscard]] reply_handler& place(std::uint64_t call) noexcept override {
    return at(call).waiting;
  }
  void enter(const sent_request& which) noexcept override {
    at(which.call).frame = which.frame;
    ++waiting_;
  }
  void cancel(std::uint64_t call) override { give_up(call, errc::cancelled, "the caller gave up"); }
  /// `open` and a wait in one, for a handler of signature void(call_result).
  template <class Handler>
  std::uint64_t add(Handler handler, time_point deadline) {
    const std::uint64_t call = open(deadline);
    wait_for_reply(*this, {call, sent_request::no_frame}, std::move(handler));
    return call;
  }

  /// False: nobody waits for that call (any more).
  bool complete(std::uint64_t call, call_result result) {
    slot* s = find(call);
    if (!s) return false;
    finish(*s, std::move(result), resume::now);
    return true;
  }
  [[nodiscard]] bool waits(std::uint64_t call) { return find(call) != nullptr; }
  /// Ends every call with `why(frame number)`.
  template <class Why>
    requires std::is_invocable_r_v<error, Why, std::uint64_t>
  void fail_all(Why&& why) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {  // a handler's end may add a slot
      if (!slots_[i].waiting) continue;
      finish(slots_[i], {nullptr, why(slots_[i].frame)}, resume::later);
    }
  }
  void fail_all(const error& reason) {
    fail_all([&reason](std::uint64_t) { return reason; });
  }
  /// Destroys those who wait, without running them.
  void drop_all() noexcept {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slot& s = slots_[i];
      if (!s.waiting) continue;
      deadlines_.remove(s);
      --waiting_;
      s.waiting.drop();
      free_.push_back(s.index);
    }
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }

 private:
  enum class resume : std::uint8_t { now, later };

  struct slot final : deadline_entry {
    slot(pending_calls& o, std::uint32_t i) : owner(o), index(i) {}

    [[nodiscard]] std::uint64_t id() const noexcept {
      return std::uint64_t{generation} << 32 | index;
    }
    void expired() override { owner.give_up(id(), errc::timed_out, "no reply by the deadline"); }

    pending_calls& owner;
    std::uint32_t index;
    std::uint64_t frame = sent_request::no_frame;
    std::uint32_t generation = 0;
    reply_handler waiting;
  };

  slot& at(std::uint64_t call) noexcept { return slots_[static_cast<std::uint32_t>(call)]; }
  slot& take() {
    if (free_.empty()) {
      // So that giving a slot back never allocates.
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 16);
      slots_.emplace_back(*this, static_cast<std::uint32_t>(slots_.size()));
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    slot& s = slots_[free_.back()];
    free_.pop_back();
    s.generation = ++generation_;
    return s;
  }
  slot* find(std::uint64_t call) noexcept {
    const auto index = static_cast<std::uint32_t>(call);
    if (index >= slots_.size()) return nullptr;
    slot& s = slots_[index];
    return s.waiting && s.id() == call ? &s : nullptr;
  }
  void finish(slot& s, call_result result, resume when) {
    deadlines_.remove(s);
    --waiting_;
    // The slot is free only after the handler has left it, which it does first; a handler that runs
    // inline may already take another slot.
    struct put_back {
      pending_calls& self;
      std::uint32_t index;
      ~put_back() { self.free_.push_back(index); }
    } later{*this, s.index};
    if (when == resume::now) {
      s.waiting.resume(here_, std::move(result));
    } else {
      s.waiting.post(std::move(result));
    }
  }
  void give_up(std::uint64_t call, errc code, const char* why) {
    slot* s = find(call);
    if (!s) return;
    const call_progress ran = gave_up_(call, s->frame);
    finish(*s, {nullptr, error(code, why, ran)}, resume::later);
  }

  asio::io_context& here_;
  timer_list& deadlines_;
  gave_up gave_up_;
  std::deque<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t waiting_ = 0;
  std::uint32_t generation_ = 0;
};

}  // namespace weft::engine
