// SPDX-License-Identifier: BSL-1.0
// Bytes in, frames out: cuts a byte stream into frames. It does no I/O, so any source can feed it.
//
//   room() ──► where the next bytes go:   rest of the head | rest of the tensors | small buffer
//   arrived(n) ──► checks, allocates, delivers every frame that is now complete
//
// Large pieces are received where they stay. Only bytes that share a read with a frame's beginning
// are copied once. Memory grows with the bytes that arrived, not with announced lengths. Tensors
// are the exception: their lengths are checked against the sink's bounds first.
//
// If there is no memory for a frame, the assembler skips it; the stream goes on behind it, because
// the frame's length is known. If it can, it keeps the frame's sections: services count on them.
// Behind given memory that is taken back, it reads the rest of the frame past.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>
#include <weft/transport/frame_sink.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/ask_for_memory.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/detail/drop_tensors.hpp>
#include <weft/wire/given_memory.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace weft {

/// Not thread safe. After an error it must not be used again.
class frame_assembler {
 public:
  /// Bytes of the buffer for small frames. The first buffer is smaller, until a read has filled it.
  static constexpr std::size_t buffer_size = std::size_t{64} * 1024;

  /// Gives the memory for the next bytes, in order. Returns how many pieces of `out` it used, at
  /// least one. Valid until `arrived`. Requires out.size() >= 2.
  [[nodiscard]] std::size_t room(std::span<asio::mutable_buffer> out, const limits& bounds);

  /// Takes the next `count` bytes, which are in the memory that `room` gave. Returns how many
  /// frames it delivered. Errors: those of decode_header and of the sink; message_too_large.
  [[nodiscard]] expected<std::size_t> arrived(std::size_t count, frame_sink& sink);

  /// Held from before `room` until the bytes are there; without it, nothing is read into memory
  /// that was given. Frames that begin from now on may get such memory.
  [[nodiscard]] std::unique_lock<std::mutex> hold_given() {
    takes_given_ = true;
    return given_ ? given_->hold() : std::unique_lock<std::mutex>();
  }

  /// No frame has begun.
  [[nodiscard]] bool between_frames() const noexcept {
    return stage_ == stage::header && filled_ == 0;
  }

 private:
  enum class stage : std::uint8_t {
    header,
    head,
    blobs,
    lost_payload,  // of a skipped frame: the bytes before its table
    lost_table,    // the table: it has the length of the rest, and the sections to keep
    lost_blobs
  };
  [[nodiscard]] std::size_t head_size() const noexcept {
    return header_size + frame_.header.payload_bytes + frame_.header.table_bytes;
  }
  /// Throws std::bad_alloc.
  void grow_head();
  /// Runs `use(to, bytes)` over the memory of the frame under way, for at most `count` bytes.
  template <class Use>
  std::size_t fill(std::size_t count, Use&& use);
  [[nodiscard]] expected<void> head_complete(frame_sink& sink);
  [[nodiscard]] expected<void> take_blobs(frame_sink& sink);
  void lose_head() noexcept;
  void take_table(std::span<const std::byte> part) noexcept;
  [[nodiscard]] expected<void> end_table(const limits& bounds);
  [[nodiscard]] expected<void> lose_blobs(error why);
  /// Skips bytes of a frame. False: more bytes are needed.
  [[nodiscard]] expected<bool> go_by(std::size_t& at, frame_sink& sink);
  void skip_full_blobs() noexcept;

  frame frame_;                                    // under way
  stage stage_ = stage::header;                    // of frame_
  bool grow_ = false;                              // a read filled the first buffer
  std::size_t head_have_ = 0;                      // bytes of frame_.head that arrived
  std::size_t blob_ = 0;                           // first blob that is not full
  std::size_t blob_have_ = 0;                      // bytes of it that arrived
  intrusive_ptr<given_memory> given_;              // for the blobs of frame_
  bool takes_given_ = false, reads_past_ = false;  // as `room` found it taken back
  bytes buffer_;
  std::size_t filled_ = 0;  // bytes in buffer_, all of one unfinished header between reads
  // Of a skipped frame:
  std::uint64_t lost_ = 0;                    // bytes that are still to skip in this stage
  std::uint64_t size_ = 0;                    // on the wire, when it is known
  std::uint64_t table_have_ = 0;              // bytes of its table that were skipped
  std::uint64_t length_ = 0;                  // of a tensor, as far as it is read
  std::uint64_t tensors_size_ = 0;            // of those before
  partial_frame left_ = partial_frame::head;  // in frame_
  error why_;
};

namespace detail {
[[nodiscard]] inline auto frame_too_large(std::string text) {
  return unexpected(error(errc::message_too_large, std::move(text), call_progress::maybe_executed,
                          origin::transport));
}
[[nodiscard]] inline error no_memory_for_frame() noexcept {
  return error(errc::resource_exhausted, "no memory for the message", call_progress::not_executed);
}
}  // namespace detail

inline void frame_assembler::grow_head() {
  constexpr std::size_t step = std::size_t{64} * 1024;
  const std::size_t wanted = std::min(head_size(), std::max(step, 2 * head_have_));
  if (wanted <= detail::block_cache::block_size) {  // no peer has chosen that
    return detail::or_die([&] { frame_.head.resize(wanted); });
  }
  // A world takes it from calls, which fail alone.
  const frame_kind kind = frame_.header.kind;
  if (kind == frame_kind::request || is_answer(kind)) detail::ask_for_memory(wanted);
  frame_.head.resize(wanted);
}

inline void frame_assembler::skip_full_blobs() noexcept {
  while (blob_ < frame_.blobs.size() && frame_.blobs[blob_].size() == blob_have_) {
    ++blob_;
    blob_have_ = 0;
  }
}

inline std::size_t frame_assembler::room(std::span<asio::mutable_buffer> out,
                                         const limits& bounds) {
  std::size_t used = 0;
  const auto add = [&](std::byte* to, std::size_t size) {
    out[used++] = asio::mutable_buffer(to, size);
  };
  if (stage_ == stage::head) {
    if (head_have_ == frame_.head.size()) {
      try {
        grow_head();
      } catch (const std::bad_alloc&) {
        lose_head();
        return room(out, bounds);
      }
    }
    add(frame_.head.data() + head_have_, frame_.head.size() - head_have_);
    if (frame_.head.size() < head_size()) return used;
  } else if (reads_past_ = given_ && given_->is_taken_back();
             stage_ == stage::blobs && !reads_past_) {
    std::size_t have = blob_have_;
    for (std::size_t i = blob_; i < frame_.blobs.size(); ++i, have = 0) {
      if (used == out.size()) return used;
      const blob& b = frame_.blobs[i];
      if (b.size() > have) add(b.data() + have, b.size() - have);
    }
    if (used == out.size()) return used;
  }
  if (buffer_.size() == 0) {
    buffer_.resize(1024);
  } else if (grow_ && bounds.payload > bounds.handshake) {
    grow_ = false;
    buffer_.resize(buffer_size);
  }
  add(buffer_.data() + filled_, buffer_.size() - filled_);
  return used;
}

template <class Use>
std::size_t frame_assembler::fill(std::size_t count, Use&& use) {
  std::size_t done = 0;
  if (stage_ == stage::head) {
    while (done < count && head_have_ < head_size()) {
      if (head_have_ == frame_.head.size()) {
        try {
          grow_head();
        } catch (const std::bad_alloc&) {
          lose_head();
          return done;
        }
      }
      const std::size_t n = std::min(count - done, frame_.head.size() - head_have_);
      use(frame_.head.data() + head_have_, n);
      head_have_ += n;
      done += n;
    }
  } else if (stage_ == stage::blobs) {
    for (skip_full_blobs(); done < count && blob_ < frame_.blobs.size(); skip_full_blobs()) {
      const blob& b = frame_.blobs[blob_];
      const std::size_t n = std::min(count - done, b.size() - blob_have_);
      use(b.data() + blob_have_, n);
      blob_have_ += n;
      done += n;
    }
  }
  return done;
}

inline expected<std::size_t> frame_assembler::arrived(std::size_t count, frame_sink& sink) {
  sink.progress();
  const bool past = reads_past_ && stage_ == stage::blobs;
  const std::size_t direct = past ? 0 : fill(count, [](std::byte*, std::size_t) {});
  filled_ += count - direct;
  if (filled_ == buffer_.size() && buffer_.size() < buffer_size) grow_ = true;

  std::size_t delivered = 0;
  std::size_t at = 0;  // in buffer_
  const auto copy = [&](std::byte* to, std::size_t n) {
    std::memcpy(to, buffer_.data() + at, n);
    at += n;
  };
  for (;;) {
    if (stage_ == stage::header) {
      if (filled_ - at < header_size) break;
      auto header = decode_header(
          std::span<const std::byte, header_size>(buffer_.data() + at, header_size), sink.bounds());
      if (!header) return unexpected(std::move(header).error());
      frame_.header = *header;
      stage_ = stage::head;
      try {
        grow_head();
      } catch (const std::bad_alloc&) {
        lose_head();
      }
    }
    if (stage_ == stage::head) {
      fill(filled_ - at, copy);
      if (stage_ == stage::head && head_have_ < head_size()) break;
    }
    if (stage_ >= stage::lost_payload) {
      const auto gone = go_by(at, sink);
      if (!gone) return unexpected(gone.error());
      if (!*gone) break;
      ++delivered;
      continue;
    }
    if (stage_ == stage::head) {
      if (auto checked = head_complete(sink); !checked) {
        return unexpected(std::move(checked).error());
      }
      if (stage_ == stage::lost_blobs) continue;
      stage_ = stage::blobs;
    }
    if (given_) {
      const auto held = given_->hold();
      const auto pass = [&](std::byte*, std::size_t n) { at += n; };
      given_->is_taken_back() ? fill(filled_ - at, pass) : fill(filled_ - at, copy);
    } else {
      fill(filled_ - at, copy);
    }
    skip_full_blobs();
    if (blob_ < frame_.blobs.size()) break;
    given_ = nullptr;
    stage_ = stage::header;
    head_have_ = blob_ = blob_have_ = 0;
    if (auto taken = sink.frame_arrived(std::exchange(frame_, frame{})); !taken) {
      return unexpected(std::move(taken).error());
    }
    ++delivered;
  }
  filled_ -= at;
  // What is left is a frame that has begun: the sink may watch for its stalling.
  if (delivered > 0 && (filled_ > 0 || stage_ != stage::header)) sink.progress();
  if (at > 0 && filled_ > 0) std::memmove(buffer_.data(), buffer_.data() + at, filled_);
  return delivered;
}

inline expected<void> frame_assembler::head_complete(frame_sink& sink) {
  const std::size_t tensors = frame_.header.tensors;
  if (tensors == 0) return {};
  const std::uint64_t most = sink.bounds().frame_tensor_bytes;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::uint64_t length = frame_.blob_length(i);
    if (length > most - sum) {
      return detail::frame_too_large("a frame with more than " + std::to_string(most) +
                                     " bytes of tensors");
    }
    sum += length;
  }
  if (frame_.on_bulk()) return {};  // they come elsewhere
  if (auto taken = take_blobs(sink); !taken) {
    if (taken.error() != errc::resource_exhausted) return taken;
    lost_ = sum;
    return lose_blobs(std::move(taken).error());
  }
  return {};
}

inline expected<void> frame_assembler::take_blobs(frame_sink& sink) {
  const std::size_t tensors = frame_.header.tensors;
  if (takes_given_) given_ = sink.given_for(frame_);
  try {
    frame_.blobs.reserve(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      const auto length = static_cast<std::size_t>(frame_.blob_length(i));
      if (length == 0) {
        frame_.blobs.emplace_back();
        continue;
      }
      if (given_) {
        if (std::byte* const there = given_->place(frame_, i, length)) {
          frame_.blobs.emplace_back(there, length, given_);
          continue;
        }
      }
      auto memory = sink.allocate(length);
      if (!memory) return unexpected(std::move(memory).error());
      frame_.blobs.push_back(*std::move(memory));
    }
  } catch (const std::bad_alloc&) {  // the peer says how many there are, and how long
    return unexpected(detail::no_memory_for_frame());
  }
  return {};
}

// ── skipped frames ──

/// There is no memory for more of the head. Its bytes that came end with a part of the table, at
/// most.
inline void frame_assembler::lose_head() noexcept {
  const std::size_t table_at = header_size + frame_.header.payload_bytes;
  const bytes came = std::exchange(frame_.head, bytes());
  why_ = detail::no_memory_for_frame();
  left_ = partial_frame::sections;
  table_have_ = length_ = tensors_size_ = 0;
  stage_ = head_have_ < table_at ? stage::lost_payload : stage::lost_table;
  lost_ = (head_have_ < table_at ? table_at : head_size()) - head_have_;
  if (head_have_ > table_at) {
    take_table(came.view().subspan(table_at, head_have_ - table_at));
  }
}

/// Adds up the lengths of the tensors, and keeps the sections behind the room for the header.
inline void frame_assembler::take_table(std::span<const std::byte> part) noexcept {
  const std::uint64_t lengths = std::uint64_t{8} * frame_.header.tensors;
  for (; !part.empty() && table_have_ < lengths; part = part.subspan(1)) {
    length_ |= std::to_integer<std::uint64_t>(part.front()) << (8 * (table_have_ % 8));
    if (++table_have_ % 8 == 0) {
      tensors_size_ = detail::saturating_add(tensors_size_, std::exchange(length_, 0));
    }
  }
  table_have_ += part.size();
  if (left_ == partial_frame::header || part.empty()) return;
  try {
    if (frame_.head.size() == 0) frame_.head.resize(header_size);
    frame_.head.append(part.data(), part.size());
  } catch (const std::bad_alloc&) {  // the peer says how long they are
    frame_.head = bytes();
    left_ = partial_frame::header;
  }
}

inline expected<void> frame_assembler::end_table(const limits& bounds) {
  if (tensors_size_ > bounds.frame_tensor_bytes) {
    return detail::frame_too_large("a frame with too many bytes of tensors");
  }
  lost_ = frame_.on_bulk() ? 0 : tensors_size_;
  size_ = head_size() + lost_;
  stage_ = stage::lost_blobs;
  if (left_ == partial_frame::header) return {};
  if (frame_.head.size() == 0) frame_.head.resize(header_size);
  frame_header& h = frame_.header;
  h.table_bytes -= std::uint32_t{8} * h.tensors;
  h.tensors = 0;
  h.payload_bytes = 0;
  h.flags &= static_cast<std::uint16_t>(~flag_padded);
  return detail::drop_tensors(frame_);
}

/// There is no memory for the tensors, whose sum is in lost_.
inline expected<void> frame_assembler::lose_blobs(error why) {
  size_ = head_size() + lost_;
  why_ = std::move(why);
  given_ = nullptr;
  left_ = partial_frame::head;
  stage_ = stage::lost_blobs;
  return detail::drop_tensors(frame_);
}

inline expected<bool> frame_assembler::go_by(std::size_t& at, frame_sink& sink) {
  const auto pass = [&] {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(lost_, filled_ - at));
    lost_ -= n;
    at += n;
    return lost_ == 0;
  };
  if (stage_ == stage::lost_payload) {
    if (!pass()) return false;
    stage_ = stage::lost_table;
    lost_ = frame_.header.table_bytes;
  }
  if (stage_ == stage::lost_table) {
    const std::size_t before = at;
    const bool whole = pass();
    take_table({buffer_.data() + before, at - before});
    if (!whole) return false;
    if (auto ok = end_table(sink.bounds()); !ok) return unexpected(std::move(ok).error());
  }
  if (!pass()) return false;
  stage_ = stage::header;
  head_have_ = blob_ = blob_have_ = 0;
  if (auto taken = sink.frame_skipped(std::exchange(frame_, frame{}), left_, size_,
                                      std::exchange(why_, error()));
      !taken) {
    return unexpected(taken.error());
  }
  return true;
}

}  // namespace weft
