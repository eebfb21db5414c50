// SPDX-License-Identifier: BSL-1.0
// Bytes in, frames out: cuts a byte stream into frames without I/O, so that anything can feed it.
//
//   room() ──► where the next bytes go:   rest of the head | rest of the tensors | small buffer
//   arrived(n) ──► checks, allocates, delivers every frame that is now complete
//
// Large pieces are received where they stay; only what shares a read with a frame's beginning is
// copied once. Memory grows with the bytes that arrived, not with the lengths that were announced,
// except tensors, whose lengths are checked against the sink's bounds first.
#pragma once

#include <weft/transport/frame_sink.hpp>
#include <weft/wire/bytes.hpp>

#include <asio/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  enum class stage : std::uint8_t { header, head, blobs };
  static constexpr std::size_t first_buffer_size = 1024;
  static constexpr std::size_t head_step = std::size_t{64} * 1024;

  [[nodiscard]] std::size_t head_size() const noexcept {
    return header_size + frame_.header.payload_bytes + frame_.header.table_bytes;
  }
  void grow_head() {
    frame_.head.resize(std::min(head_size(), std::max(head_step, 2 * head_have_)));
  }
  /// Runs `use(to, bytes)` over the memory of the frame under way, for at most `count` bytes.
  template <class Use>
  std::size_t fill(std::size_t count, Use&& use);
  [[nodiscard]] expected<void> head_complete(frame_sink& sink);
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
};

inline std::size_t frame_assembler::room(std::span<asio::mutable_buffer> out,
                                         const limits& bounds) {
  std::size_t used = 0;
  const auto add = [&](std::byte* to, std::size_t size) {
    out[used++] = asio::mutable_buffer(to, size);
  };
  if (stage_ == stage::head) {
    if (head_have_ == frame_.head.size()) grow_head();
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
    buffer_.resize(first_buffer_size);
  } else if (grow_ && bounds.payload > bounds.handshake) {
    buffer_.resize(buffer_size);
    grow_ = false;
  }
  add(buffer_.data() + filled_, buffer_.size() - filled_);
  return used;
}

template <class Use>
std::size_t frame_assembler::fill(std::size_t count, Use&& use) {
  std::size_t done = 0;
  if (stage_ == stage::head) {
    while (done < count && head_have_ < head_size()) {
      if (head_have_ == frame_.head.size()) grow_head();
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
      frame_.head.resize(std::min(head_size(), head_step));
      stage_ = stage::head;
    }
    if (stage_ == stage::head) {
      fill(filled_ - at, copy);
      if (head_have_ < head_size()) break;
      if (auto checked = head_complete(sink); !checked) {
        return unexpected(std::move(checked).error());
      }
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
  return {};
}

}  // namespace weft
