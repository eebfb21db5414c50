// SPDX-License-Identifier: BSL-1.0
// How much a peer can make a worker hold: pure accounting, without frames, locks or threads.
//
//   caller: send_window                         callee: receive_window
//     sent ─────────── request ──────────────►    arrived                held
//                                                 begun                  owed
//     credited ◄────── reply {credit}             take_all
//     credited ◄────── window {credit}            take_due
//     starved  ─────── window {0} ───────────►    starved
//
// The callee grants a window in its registration (rpc/membership.hpp). A request counts its bytes,
// at least 1 KiB, from when it is queued at the caller until the caller hears that it has begun. A
// request may be queued while less than the window is in use, so that at most the window and one
// request are held, whatever its size. Several threads look for room before they know its size, so
// who comes to queue it too late is sent back. Replies and all other frames are always taken: two
// sides that both stopped reading would block each other for ever. In exchange no request of a peer
// is begun while more than `mark` bytes of replies to it are unwritten. Of large replies, which
// travel apart, the largest is left out: it holds up no small one, whatever its size.
#pragma once

#include <weft/engine/fwd.hpp>

#include <algorithm>
#include <cstdint>

namespace weft::engine {

/// What a request of `bytes` on the wire counts.
[[nodiscard]] constexpr std::uint64_t request_cost(std::uint64_t bytes) noexcept {
  return std::max<std::uint64_t>(bytes, 1024);
}

/// The caller's end.
class send_window {
 public:
  explicit send_window(std::uint64_t granted) noexcept : granted_(granted) {}

  /// A request is queued. False: what is in use leaves no room.
  [[nodiscard]] bool sent(std::uint64_t cost) noexcept {
    if (full()) return false;
    used_ += cost;
    return true;
  }
  /// False: that much was never used, so the peer breaks the protocol.
  [[nodiscard]] bool credited(std::uint64_t bytes) noexcept {
    if (bytes > used_) return false;
    used_ -= bytes;
    if (bytes > 0) asked_ = false;  // the peer's own asking brings none
    return true;
  }
  [[nodiscard]] bool full() const noexcept { return used_ >= granted_; }
  /// Whether to tell the peer that nothing can be sent; once until credit comes.
  [[nodiscard]] bool ask() noexcept {
    if (asked_ || !full()) return false;
    asked_ = true;
    return true;
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }

 private:
  std::uint64_t granted_;
  std::uint64_t used_ = 0;
  bool asked_ = false;
};

/// The callee's end.
class receive_window {
 public:
  enum class replies : bool { all, but_the_largest };
  receive_window(std::uint64_t granted, std::uint64_t mark, replies counted = replies::all) noexcept
      : granted_(granted), mark_(mark), counted_(counted) {}

  /// False: the peer sent more than it may.
  [[nodiscard]] bool arrived(std::uint64_t cost) noexcept {
    if (held_ + owed_ >= granted_) return false;
    held_ += cost;
    return true;
  }
  /// The request begins, or never will.
  void begun(std::uint64_t cost) noexcept {
    held_ -= cost;
    owed_ += cost;
  }
  /// The peer cannot send: whatever is free is told at once.
  void starved() noexcept { starved_ = true; }

  /// Credit that a reply carries: all there is.
  [[nodiscard]] std::uint64_t take_all() noexcept {
    starved_ = starved_ && owed_ == 0;
    const std::uint64_t credit = owed_;
    owed_ = 0;
    return credit;
  }
  /// Credit is worth a frame of its own.
  [[nodiscard]] bool due() const noexcept {
    return owed_ > 0 && (starved_ || owed_ >= granted_ / 4);
  }
  /// That credit; 0: none is due.
  [[nodiscard]] std::uint64_t take_due() noexcept { return due() ? take_all() : 0; }

  void reply_queued(std::uint64_t bytes) noexcept {
    unwritten_ += bytes;
    if (counted_ == replies::but_the_largest) largest_ = std::max(largest_, bytes);
  }
  void reply_written(std::uint64_t bytes) noexcept {
    unwritten_ -= bytes;
    if (unwritten_ == 0) largest_ = 0;
  }
  /// Whether another request may begin.
  [[nodiscard]] bool may_begin() const noexcept {
    return unwritten_ <= largest_ || unwritten_ - largest_ <= mark_;
  }

  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }
  [[nodiscard]] std::uint64_t owed() const noexcept { return owed_; }
  [[nodiscard]] std::uint64_t unwritten() const noexcept { return unwritten_; }

 private:
  std::uint64_t granted_;
  std::uint64_t mark_;
  std::uint64_t held_ = 0;       // of requests that have not begun
  std::uint64_t owed_ = 0;       // free again, and the peer does not know
  std::uint64_t unwritten_ = 0;  // of replies
  std::uint64_t largest_ = 0;    // of those since there was none, if it is left out
  replies counted_;
  bool starved_ = false;
};

}  // namespace weft::engine
