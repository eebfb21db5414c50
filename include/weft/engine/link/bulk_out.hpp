// SPDX-License-Identifier: BSL-1.0
// Large tensors on their way to a peer, on a connection of their own.
//
//   closed ──a large message──► opening ──► open     what is sent before travels with its calls
//      ▲            could not be opened │
//      └────────────────────────────────┘
//
// One thread at a time writes, a turn at a time, and holds no lock meanwhile: calls go by.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/time.hpp>
#include <weft/transport/any_connection.hpp>
#include <weft/transport/outbox.hpp>
#include <weft/wire/bulk.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace weft::engine {

/// Guarded by the link's lock, but for `write`.
class bulk_out {
 public:
  static constexpr std::uint64_t turn_bytes = 1u << 20;

  /// The peer takes bulk.
  void allow() noexcept { allowed_ = true; }
  [[nodiscard]] bool is_open() const noexcept { return connection_ && !closed_; }
  /// Something large is sent, and cannot go here yet. True: open a connection, whose end is told by
  /// `opened` or `failed`.
  [[nodiscard]] bool wants_connection(time_point now) noexcept {
    if (!allowed_ || opening_ || connection_ || closed_ || now < again_) return false;
    opening_ = true;
    return true;
  }
  /// False: the link is down, so close it.
  [[nodiscard]] bool opened(connection_ptr c) noexcept {
    opening_ = false;
    if (closed_) return false;
    connection_ = std::move(c);
    return true;
  }
  void failed(time_point now) noexcept {
    opening_ = false;
    again_ = now + std::chrono::seconds(1);
  }

  /// The bulk of the frame of that number, each greater than the one before.
  void push(std::uint64_t number, frame&& f) {
    bytes_ += f.wire_size();
    ++frames_;
    queue_.emplace_hint(queue_.end(), number, std::move(f));
  }
  /// If no byte of it can have been written, takes it back; else a frame without head.
  [[nodiscard]] frame withdraw(std::uint64_t number) noexcept {
    const auto at = queue_.find(number);
    if (at == queue_.end()) return {};
    frame out = std::move(at->second);
    queue_.erase(at);
    bytes_ -= out.wire_size();
    --frames_;
    return out;
  }
  [[nodiscard]] bool can_withdraw(std::uint64_t number) const { return queue_.contains(number); }
  /// Bytes that are not written.
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return bytes_; }
  /// Frames that are not written.
  [[nodiscard]] std::size_t waiting() const noexcept {
    return frames_ + (is_open() && !writing_ ? connection_->unsent_frames() : 0);
  }

  // ── writing ──

  /// True: `write` follows, without the lock, then `end_turn`.
  [[nodiscard]] bool begin_turn() noexcept {
    if (!is_open() || writing_ || frames_ == 0) return false;
    while (!queue_.empty() && box_.waiting_bytes() < turn_bytes) {
      frame& next = queue_.begin()->second;
      boxed_ += next.wire_size();
      detail::or_die([&] { static_cast<void>(box_.push(std::move(next))); });
      queue_.erase(queue_.begin());
    }
    box_.set_turn(turn_bytes);
    writing_ = true;
    return true;
  }
  [[nodiscard]] write_status write() noexcept { return connection_->try_write(box_); }
  using frames = std::map<std::uint64_t, frame>;  // by number
  struct turn {
    std::vector<frame> finished;  ///< to be destroyed without the lock
    frame_queue abandoned;        ///< likewise
    frames withdrawn;             ///< likewise
    std::uint64_t bytes = 0;      ///< written
    std::uint64_t replies = 0;    ///< ... of answers
  };
  [[nodiscard]] turn end_turn(write_status result) noexcept {
    turn out;
    writing_ = false;
    blocked_ = result == write_status::blocked;
    out.finished.swap(box_.finished());
    if (closed_) {
      close_now(out.abandoned);
      return out;
    }
    out.bytes = boxed_ - box_.waiting_bytes();
    boxed_ -= out.bytes;
    bytes_ -= out.bytes;
    frames_ = queue_.size() + box_.frames();
    out.replies = box_.replies_gone();
    return out;
  }
  /// Somebody waits until more can be written; one at a time. False: somebody does, or nothing is
  /// left.
  [[nodiscard]] bool begin_wait() noexcept {
    return is_open() && (blocked_ || frames_ > 0) && !std::exchange(waits_, true);
  }
  /// It has waited.
  void may_write() noexcept { blocked_ = false; }
  /// Whether that one goes on, as something is left.
  [[nodiscard]] bool goes_on() noexcept { return waits_ = is_open() && (blocked_ || frames_ > 0); }
  [[nodiscard]] const connection_ptr& connection() const noexcept { return connection_; }

  /// For good. What was left is destroyed by the caller, without the lock.
  [[nodiscard]] turn close() noexcept {
    turn out;
    closed_ = true;
    if (!writing_) close_now(out.abandoned);
    out.withdrawn.swap(queue_);
    return out;
  }

 private:
  void close_now(frame_queue& abandoned) noexcept {
    if (connection_) connection_->close();
    abandoned = box_.abandon();
    bytes_ = 0;
    frames_ = 0;
  }

  bool allowed_ = false;
  bool opening_ = false;
  bool closed_ = false;
  bool writing_ = false;  // a thread is in `write`: box_ is its
  bool waits_ = false;
  bool blocked_ = false;  // the last turn, also if it has taken all
  time_point again_{};    // not before, if it could not be opened
  connection_ptr connection_;
  frames queue_;  // may be taken back
  outbox box_;
  std::uint64_t boxed_ = 0;  // bytes in it
  std::uint64_t bytes_ = 0;  // with those that may be taken back
  std::size_t frames_ = 0;
};

}  // namespace weft::engine
