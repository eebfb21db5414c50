// SPDX-License-Identifier: BSL-1.0
// Bytes in, frames out: cuts a byte stream into frames without I/O, so that anything can feed it.
//
//   room() ──► where the next bytes go:   rest of the head | rest of the tensors | small buffer
//   arrived(n) ──► checks, allocates, delivers every frame that is now complete
//
// Large pieces are received where they stay; only what shares a read with a frame's beginning is
// copied once. Memory grows with the bytes that arrived, not with the lengths that were announced,
// except tensors, whose lengths are checked against the sink's bounds first. A frame for which
// there is no memory goes by: its length is known, so the stream goes on behind it.
#pragma once

#include <weft/core/detail/bare_error.hpp>
#include <weft/core/detail/insist.hpp>
#include <weft/transport/frame_sink.hpp>
#include <weft/wire/bytes.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace weft {

/// Not thread safe. After an error it must not be used again.
class frame_assembler {
 public:
  /// Bytes of the buffer for small frames, once a read has filled the first, smaller one.
  static constexpr std::size_t buffer_size = std::size_t{64} * 1024;

  /// Names the memory for the next bytes, in order; returns how many pieces of `out` are used, at
  /// least one. Valid until `arrived`. Requires out.size() >= 2.
  [[nodiscard]] std::size_t room(std::span<asio::mutable_buffer> out, const limits& bounds);

  /// The next `count` bytes are in the memory that `room` named. Returns how many frames were
  /// delivered. Errors: those of decode_header and of the sink; message_too_large.
  [[nodiscard]] expected<std::size_t> arrived(std::size_t count, frame_sink& sink);

  /// No frame is under way.
  [[nodiscard]] bool between_frames() const noexcept {
    return stage_ == stage::header && filled_ == 0;
  }

 private:
  enum class stage : std::uint8_t {
    header,
    head,
    blobs,
    lost_payload,  // of a frame that goes by: what comes before its table
    lost_table,    // the table, which says how long the rest is
    lost_blobs
  };
  static constexpr std::size_t first_buffer_size = 1024;
  static constexpr std::size_t head_step = std::size_t{64} * 1024;

  [[nodiscard]] std::size_t head_size() const noexcept {
    return header_size + frame_.header.payload_bytes + frame_.header.table_bytes;
  }
  /// Throws std::bad_alloc; not lightly for a frame that cannot go by.
  void grow_head() {
    const std::size_t wanted = std::min(head_size(), std::max(head_step, 2 * head_have_));
    const auto grow = [&] { frame_.head.resize(wanted); };
    must_arrive(frame_.header) ? detail::insist(grow) : grow();
  }
  /// Runs `use(to, bytes)` over the memory of the frame under way, for at most `count` bytes.
  template <class Use>
  std::size_t fill(std::size_t count, Use&& use);
  [[nodiscard]] expected<void> head_complete(frame_sink& sink);
  [[nodiscard]] expected<void> take_blobs(frame_sink& sink);
  void lose_head();
  void lose_blobs(error why) noexcept;
  /// Of a frame that goes by; false: more bytes are needed.
  [[nodiscard]] expected<bool> go_by(std::size_t& at, frame_sink& sink);
  void skip_full_blobs() noexcept {
    while (blob_ < frame_.blobs.size() && frame_.blobs[blob_].size() == blob_have_) {
      ++blob_;
      blob_have_ = 0;
    }
  }
  [[nodiscard]] static auto refuse(errc code, std::string text) {
    return unexpected(error(code, std::move(text), execution::maybe_executed, origin::transport));
  }

  frame frame_;                  // under way
  stage stage_ = stage::header;  // of frame_
  bool grow_ = false;            // a read filled the first buffer
  std::size_t head_have_ = 0;    // bytes of frame_.head that arrived
  std::size_t blob_ = 0;         // first blob that is not full
  std::size_t blob_have_ = 0;    // bytes of it that arrived
  bytes buffer_;
  std::size_t filled_ = 0;  // bytes in buffer_, all of one unfinished header between reads
  std::uint64_t lost_ = 0;  // bytes that still go by in this stage
  std::uint64_t size_ = 0;  // of a frame that goes by, when it is known
  bytes lengths_;           // the beginning of its table: the lengths of its tensors
  error why_;               // it goes by
};

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
  } else if (stage_ == stage::blobs) {
    std::size_t have = blob_have_;
    for (std::size_t i = blob_; i < frame_.blobs.size(); ++i, have = 0) {
      if (used == out.size()) return used;
      const blob& b = frame_.blobs[i];
      if (b.size() > have) add(b.data() + have, b.size() - have);
    }
    if (used == out.size()) return used;
  }
  if (buffer_.size() == 0) {
    detail::insist([&] { buffer_.resize(first_buffer_size); });
  } else if (grow_ && bounds.payload > bounds.handshake) {
    grow_ = false;
    try {
      buffer_.resize(buffer_size);
    } catch (const std::bad_alloc&) {
      // The small one will do.
    }
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
  const std::size_t direct = fill(count, [](std::byte*, std::size_t) {});
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
    fill(filled_ - at, copy);
    skip_full_blobs();
    if (blob_ < frame_.blobs.size()) break;
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
      return refuse(errc::message_too_large,
                    "a frame with more than " + std::to_string(most) + " bytes of tensors");
    }
    sum += length;
  }
  if (auto taken = take_blobs(sink); !taken) {
    if (taken.error() != errc::resource_exhausted) return taken;
    lost_ = sum;
    lose_blobs(taken.error());
  }
  return {};
}

inline expected<void> frame_assembler::take_blobs(frame_sink& sink) {
  const std::size_t tensors = frame_.header.tensors;
  try {
    frame_.blobs.reserve(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      const auto length = static_cast<std::size_t>(frame_.blob_length(i));
      if (length == 0) {
        frame_.blobs.emplace_back();
        continue;
      }
      auto memory = sink.allocate(length);
      if (!memory) return unexpected(std::move(memory).error());
      frame_.blobs.push_back(*std::move(memory));
    }
  } catch (const std::bad_alloc&) {
    return unexpected(detail::bare_error(errc::resource_exhausted, execution::not_executed));
  }
  return {};
}

// ── frames that go by ──

/// There is no memory for more of the head. Of what came of it only the tensors' lengths count.
inline void frame_assembler::lose_head() {
  const std::size_t table_at = header_size + frame_.header.payload_bytes;
  const std::size_t needed = std::size_t{8} * frame_.header.tensors;
  lengths_ = bytes();
  if (head_have_ > table_at) {
    const std::size_t known = std::min(head_have_ - table_at, needed);
    detail::insist([&] { lengths_.append(frame_.head.data() + table_at, known); });
  }
  frame_.head = bytes();
  why_ = detail::bare_error(errc::resource_exhausted, execution::not_executed);
  stage_ = head_have_ < table_at ? stage::lost_payload : stage::lost_table;
  lost_ = (head_have_ < table_at ? table_at : head_size()) - head_have_;
}

/// There is no memory for the tensors, whose sum is in lost_.
inline void frame_assembler::lose_blobs(error why) noexcept {
  size_ = head_size() + lost_;
  frame_.head = bytes();
  frame_.blobs.clear();
  why_ = std::move(why);
  stage_ = stage::lost_blobs;
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
    const std::size_t needed = std::size_t{8} * frame_.header.tensors;
    const std::size_t n = std::min<std::uint64_t>(
        std::min<std::uint64_t>(needed - lengths_.size(), lost_), filled_ - at);
    detail::insist([&] { lengths_.append(buffer_.data() + at, n); });
    at += n;
    lost_ -= n;
    if (!pass()) return false;
    for (std::size_t i = 0; i < frame_.header.tensors; ++i) {
      const auto length = detail::load<std::uint64_t>(lengths_.data() + 8 * i);
      if (length > sink.bounds().frame_tensor_bytes - lost_) {
        return refuse(errc::message_too_large, "a frame with too many bytes of tensors");
      }
      lost_ += length;
    }
    size_ = head_size() + lost_;
    stage_ = stage::lost_blobs;
  }
  if (!pass()) return false;
  const frame_header header = frame_.header;
  frame_ = frame{};
  lengths_ = bytes();
  stage_ = stage::header;
  head_have_ = blob_ = blob_have_ = 0;
  if (auto taken = sink.frame_skipped(header, size_, std::exchange(why_, error())); !taken) {
    return unexpected(taken.error());
  }
  return true;
}

}  // namespace weft
