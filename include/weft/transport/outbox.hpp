// SPDX-License-Identifier: BSL-1.0
// The frames waiting on a link, as a connection sees them: what is next, and how far it got.
//
//   link:        push ──► [ front (begun) | next | ... ] ──► finished(): destroyed after the lock
//   connection:           gather/advance  or  take
#pragma once

#include <weft/transport/frame_queue.hpp>

#include <asio/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// Used under the link's lock. A connection calls nothing here outside of `try_write`.
class outbox {
 public:
  outbox() = default;
  outbox(const outbox&) = delete;
  outbox& operator=(const outbox&) = delete;

  // The link's side.

  /// Makes sure that the next `push` does not throw.
  void make_room() { waiting_.make_room(); }
  /// The number that the next frame gets.
  [[nodiscard]] std::uint64_t next_number() const noexcept { return first_ + waiting_.size(); }
  /// The number of the first frame of which nothing was written.
  [[nodiscard]] std::uint64_t first_unbegun() const noexcept { return first_ + (begun() ? 1 : 0); }
  /// Appends a sealed frame; returns its number, which counts from 0.
  std::uint64_t push(frame&& f) {
    const std::uint64_t size = f.wire_size();
    waiting_.push(std::move(f));
    bytes_ += size;
    ++live_;
    return first_ + waiting_.size() - 1;
  }
  [[nodiscard]] std::size_t frames() const noexcept { return live_; }
  /// Takes the frame of that number back if none of it was written and `may(frame)`; else nothing
  /// (a frame without head).
  template <class May>
  [[nodiscard]] frame withdraw(std::uint64_t number, May&& may) noexcept {
    if (number < first_ || number - first_ >= waiting_.size()) return {};
    if (number == first_ && begun()) return {};
    if (!may(std::as_const(waiting_)[number - first_])) return {};
    frame f = std::exchange(waiting_[number - first_], frame{});
    if (f.head.size() == 0) return f;  // came twice
    bytes_ -= f.wire_size();
    --live_;
    drop_withdrawn();
    return f;
  }
  /// Bytes of the waiting frames that are not yet written.
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return bytes_; }
  /// Wholly written frames. Swap them out and let them die after the lock is released: a tensor's
  /// destructor may run user code.
  [[nodiscard]] std::vector<frame>& finished() noexcept { return finished_; }
  /// Bytes of replies and failures that are wholly written or taken, since the last call.
  [[nodiscard]] std::uint64_t replies_gone() noexcept { return std::exchange(replies_gone_, 0); }
  /// Gives up all that waits, a begun frame included (the connection is closed).
  [[nodiscard]] frame_queue abandon() noexcept {
    piece_ = within_ = 0;
    bytes_ = 0;
    live_ = 0;
    first_ += waiting_.size();
    return std::move(waiting_);
  }

  // The connection's side.

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// The front frame was written in part.
  [[nodiscard]] bool begun() const noexcept { return piece_ != 0 || within_ != 0; }
  /// Fills `out` with the bytes that come next, over several frames; returns how many buffers.
  [[nodiscard]] std::size_t gather(std::span<asio::const_buffer> out) const noexcept;
  /// The first `bytes` of what `gather` named are written. Frames completed by them are finished.
  void advance(std::size_t bytes) noexcept;
  /// Removes the front frame whole. Requires !empty() and !begun().
  [[nodiscard]] frame take() noexcept {
    frame f = pop();
    bytes_ -= f.wire_size();
    drop_withdrawn();
    return f;
  }

 private:
  /// Piece 0 is the head, piece i the blob i - 1.
  [[nodiscard]] static std::span<const std::byte> piece(const frame& f, std::size_t i) noexcept {
    if (i == 0) return f.head.view();
    return {f.blobs[i - 1].data(), f.blobs[i - 1].size()};
  }
  [[nodiscard]] static std::size_t pieces(const frame& f) noexcept { return 1 + f.blobs.size(); }
  [[nodiscard]] frame pop() noexcept {
    ++first_;
    --live_;
    frame f = waiting_.pop();
    if (is_answer(f.header.kind)) replies_gone_ += f.wire_size();
    return f;
  }
  /// The front frame is never a withdrawn one.
  void drop_withdrawn() noexcept {
    while (!waiting_.empty() && waiting_[0].head.size() == 0) {
      static_cast<void>(waiting_.pop());
      ++first_;
    }
  }

  frame_queue waiting_;      // withdrawn frames are empty
  std::size_t live_ = 0;     // not withdrawn
  std::uint64_t first_ = 0;  // number of the front frame
  std::uint64_t replies_gone_ = 0;
  std::vector<frame> finished_;
  std::uint64_t bytes_ = 0;
  std::size_t piece_ = 0;   // of the front frame
  std::size_t within_ = 0;  // bytes of that piece already written
};

inline std::size_t outbox::gather(std::span<asio::const_buffer> out) const noexcept {
  std::size_t count = 0;
  std::size_t i = piece_;
  std::size_t skip = within_;
  for (std::size_t n = 0; n < waiting_.size(); ++n, i = 0) {
    const frame& f = waiting_[n];
    for (; i < pieces(f); ++i, skip = 0) {
      const auto rest = piece(f, i).subspan(skip);
      if (rest.empty()) continue;
      if (count == out.size()) return count;
      out[count++] = asio::const_buffer(rest.data(), rest.size());
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
    try {
      finished_.push_back(pop());
    } catch (const std::bad_alloc&) {
      // Without memory for the list it dies here, under the lock: better than not at all.
    }
    drop_withdrawn();
  }
}

}  // namespace weft
