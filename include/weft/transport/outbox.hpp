// SPDX-License-Identifier: BSL-1.0
// The frames that wait on a link, as a connection sees them: the next one, and its written part.
//
//   link:        push ──► [ front (begun) | next | ... ] ──► finished(): destroyed after the lock
//   connection:           gather/advance  or  take
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/transport/frame_queue.hpp>
#include <weft/wire/bulk.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// Used under the link's lock. A connection uses it only inside `try_write`.
class outbox {
 public:
  outbox() = default;
  outbox(const outbox&) = delete;
  outbox& operator=(const outbox&) = delete;

  // For the link.

  /// The number of the next frame.
  [[nodiscard]] std::uint64_t next_number() const noexcept { return next_; }
  /// The number of the first frame of which no byte is written.
  [[nodiscard]] std::uint64_t first_unbegun() const noexcept {
    return number_at(0) + (begun() ? 1 : 0);
  }
  /// Appends a sealed frame; returns its number, which counts from 0.
  std::uint64_t push(frame&& f) {
    const std::uint64_t size = f.wire_size();
    const std::uint64_t caused = f.caused;
    waiting_.push(std::move(f));
    bytes_ += size;
    caused_bytes_ += caused;
    ++live_;
    return next_++;
  }
  [[nodiscard]] std::size_t frames() const noexcept { return live_; }
  /// If no byte of that frame is written and `may(frame)` is true, takes the frame back. Else it
  /// returns nothing (a frame without head).
  template <class May>
  [[nodiscard]] frame withdraw(std::uint64_t number, May&& may) noexcept {
    const std::size_t at = place_of(number);
    if (at >= waiting_.size() || (at == 0 && begun())) return {};
    if (waiting_[at].head.size() == 0) return {};  // came twice
    if (!may(std::as_const(waiting_)[at])) return {};
    frame f = std::exchange(waiting_[at], frame{});
    count_out(f);
    drop_withdrawn();
    const std::size_t gone = waiting_.size() - live_;
    if (gone > most_gone && gone > live_) close_up();
    return f;
  }
  /// Bytes of the waiting frames that are not yet written.
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return bytes_; }
  /// Bytes in the waiting frames that answer the peer's messages about references; the front frame
  /// counts whole. No window bounds these answers.
  [[nodiscard]] std::uint64_t caused_bytes() const noexcept { return caused_bytes_; }
  /// How many frames it can hold without allocating. For tests.
  [[nodiscard]] std::size_t capacity() const noexcept { return waiting_.capacity(); }
  /// Wholly written frames. Swap them out, and destroy them after the lock is released: a tensor's
  /// destructor may run user code.
  [[nodiscard]] std::vector<frame>& finished() noexcept { return finished_; }
  /// After so many bytes, a connection may say `blocked` though it is not: others want the thread.
  void set_turn(std::uint64_t bytes) noexcept { turn_ = bytes; }
  /// Bytes of replies and failures that are wholly written or taken, since the last call.
  [[nodiscard]] std::uint64_t replies_gone() noexcept { return std::exchange(replies_gone_, 0); }
  /// Removes all waiting frames, a begun one included (the connection is closed).
  [[nodiscard]] frame_queue abandon() noexcept {
    piece_ = within_ = 0;
    bytes_ = caused_bytes_ = 0;
    live_ = 0;
    frame_queue all = std::move(waiting_);
    forget_gaps();
    return all;
  }

  // For the connection.

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  [[nodiscard]] std::uint64_t turn() const noexcept { return turn_; }
  /// A part of the front frame is written.
  [[nodiscard]] bool begun() const noexcept { return piece_ != 0 || within_ != 0; }
  /// Fills `out` with the bytes that come next, of several frames, at most so many. Returns the
  /// number of buffers.
  [[nodiscard]] std::size_t gather(std::span<asio::const_buffer> out,
                                   std::uint64_t most = unlimited) const noexcept;
  /// The first `bytes` bytes that `gather` gave are written. Frames that are now complete are
  /// finished.
  void advance(std::size_t bytes) noexcept;
  /// Removes the front frame whole. Requires !empty() and !begun().
  [[nodiscard]] frame take() noexcept {
    frame f = pop();
    bytes_ -= f.wire_size();
    drop_withdrawn();
    return f;
  }

 private:
  /// Frames from `number` on stand from `place` on, up to the next run.
  struct run {
    std::uint64_t number;
    std::uint64_t place;
  };
  /// Piece 0 is the head, piece i the blob i - 1.
  [[nodiscard]] static std::span<const std::byte> piece(const frame& f, std::size_t i) noexcept {
    if (i == 0) return f.head.view();
    return {f.blobs[i - 1].data(), f.blobs[i - 1].size()};
  }
  [[nodiscard]] static std::size_t pieces(const frame& f) noexcept { return 1 + f.blobs.size(); }
  /// The number of the frame at that place behind the front.
  [[nodiscard]] std::uint64_t number_at(std::size_t i) const noexcept {
    if (runs_.empty()) return next_ - waiting_.size() + i;
    const std::uint64_t place = popped_ + i;
    const auto behind = std::upper_bound(runs_.begin(), runs_.end(), place,
                                         [](std::uint64_t p, const run& r) { return p < r.place; });
    const run& of = *std::prev(behind);
    return of.number + (place - of.place);
  }
  /// Where the frame of that number stands behind the front; beyond the last if it does not.
  [[nodiscard]] std::size_t place_of(std::uint64_t number) const noexcept {
    const std::size_t nowhere = waiting_.size();
    if (number >= next_) return nowhere;
    if (runs_.empty()) return number < number_at(0) ? nowhere : number - number_at(0);
    const auto behind =
        std::upper_bound(runs_.begin(), runs_.end(), number,
                         [](std::uint64_t n, const run& r) { return n < r.number; });
    if (behind == runs_.begin()) return nowhere;
    const run& of = *std::prev(behind);
    const std::uint64_t place = of.place + (number - of.number);
    const bool closed_up = behind != runs_.end() && place >= behind->place;
    return closed_up || place < popped_ ? nowhere : static_cast<std::size_t>(place - popped_);
  }
  /// A frame left other than by being written.
  void count_out(const frame& f) noexcept {
    bytes_ -= f.wire_size();
    caused_bytes_ -= f.caused;
    --live_;
  }
  /// The front frame, withdrawn or not.
  [[nodiscard]] frame pop_any() noexcept {
    frame f = waiting_.pop();
    ++popped_;
    if (waiting_.empty()) forget_gaps();
    return f;
  }
  [[nodiscard]] frame pop() noexcept {
    --live_;
    frame f = pop_any();
    const bool bulk = f.header.kind == frame_kind::bulk;
    if (is_answer(bulk ? kind_behind(f.header) : f.header.kind)) replies_gone_ += f.wire_size();
    caused_bytes_ -= f.caused;
    return f;
  }
  /// The front frame is never a withdrawn one.
  void drop_withdrawn() noexcept {
    while (!waiting_.empty() && waiting_[0].head.size() == 0) static_cast<void>(pop_any());
  }
  void forget_gaps() noexcept {
    std::vector<run>().swap(runs_);
    popped_ = 0;
  }
  /// While the front frame does not move, calls behind it may begin and be cancelled, any number of
  /// times. Removes their gaps, and writes down the numbers of the other frames. The front, begun
  /// or not, stays where it is.
  void close_up() noexcept;

  static constexpr std::size_t most_gone = 64;

  frame_queue waiting_;       // withdrawn frames are empty
  std::size_t live_ = 0;      // not withdrawn
  std::uint64_t next_ = 0;    // number of the next frame
  std::vector<run> runs_;     // none: no number is missing among those that wait
  std::uint64_t popped_ = 0;  // the front's place
  std::uint64_t replies_gone_ = 0;
  std::uint64_t caused_bytes_ = 0;
  std::vector<frame> finished_;
  std::uint64_t bytes_ = 0;
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t turn_ = unlimited;
  std::size_t piece_ = 0;   // of the front frame
  std::size_t within_ = 0;  // bytes of that piece already written
};

inline void outbox::close_up() noexcept {
  std::vector<run> runs;
  const auto note = [&](std::uint64_t number, std::uint64_t place) {
    if (runs.empty() || runs.back().number + (place - runs.back().place) != number) {
      detail::or_die([&] { runs.push_back({number, place}); });
    }
  };
  const std::uint64_t first = number_at(0);
  const auto number = [&](std::size_t i) { return runs_.empty() ? first + i : number_at(i); };
  std::uint64_t kept = 0;
  // Once around: what is kept goes to the back, into the room that it left.
  for (std::size_t i = 0, all = waiting_.size(); i < all; ++i) {
    frame f = waiting_.pop();
    if (f.head.size() == 0) continue;
    waiting_.push(std::move(f));
    note(number(i), kept++);
  }
  note(next_, kept);
  runs_.swap(runs);
  popped_ = 0;
}

inline std::size_t outbox::gather(std::span<asio::const_buffer> out,
                                  std::uint64_t most) const noexcept {
  std::size_t count = 0;
  std::size_t i = piece_;
  std::size_t skip = within_;
  for (std::size_t n = 0; n < waiting_.size(); ++n, i = 0) {
    const frame& f = waiting_[n];
    for (; i < pieces(f); ++i, skip = 0) {
      const auto rest = piece(f, i).subspan(skip);
      if (rest.empty()) continue;
      if (count == out.size() || most == 0) return count;
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), most));
      most -= size;
      out[count++] = asio::const_buffer(rest.data(), size);
    }
  }
  return count;
}

inline void outbox::advance(std::size_t bytes) noexcept {
  bytes_ -= bytes;
  while (!waiting_.empty()) {
    const frame& front = waiting_[0];
    for (; piece_ < pieces(front); ++piece_, within_ = 0) {
      const std::size_t rest = piece(front, piece_).size() - within_;
      if (bytes < rest) {
        within_ += bytes;
        return;
      }
      bytes -= rest;
    }
    piece_ = within_ = 0;
    detail::or_die([&] { finished_.push_back(pop()); });
    drop_withdrawn();
  }
}

}  // namespace weft
