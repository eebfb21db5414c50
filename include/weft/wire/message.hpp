// SPDX-License-Identifier: BSL-1.0
// Messages and their frames: `message` builds a frame, `incoming_message` reads one that arrived.
//
//   message                                        incoming_message
//     payload()  codecs write values                 check()    lengths, kinds, duplicates
//     record()   parts collect tensors, references   section()  services read theirs
//     section(), add_blob()                          record()   parts for the codecs
//     finish(header) -> frame                        payload()  codecs read values
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message_extensions.hpp>
#include <weft/wire/reader.hpp>
#include <weft/wire/writer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft {

class incoming_message;

/// An outgoing message. Move-only; one thread at a time uses it. In steady state a small message
/// without sections or blobs costs no allocation. Throws `rpc_error`, `not_sent`.
class message {
 public:
  explicit message(const limits& limit = default_limits)
      : limits_(&limit), writer_((frame_.head.resize(header_size), frame_.head), record_, limit) {}
  message(message&& other) noexcept
      : limits_(other.limits_),
        frame_(std::move(other.frame_)),
        record_(std::move(other.record_)),
        sections_(std::move(other.sections_)),
        section_count_(other.section_count_),
        padded_(other.padded_),
        writer_(other.writer_) {
    writer_.rebind(frame_.head, record_);
  }
  message& operator=(message&&) = delete;

  [[nodiscard]] writer& payload() noexcept { return writer_; }
  [[nodiscard]] message_extensions& record() noexcept { return record_; }

  /// Adds a section. Each kind may be added once.
  void section(section_kind kind, std::span<const std::byte> content);
  /// Adds a tensor buffer; returns its index. Buffers are sent in the order of their indices.
  std::uint16_t add_blob(blob b);
  [[nodiscard]] const std::vector<blob>& blobs() const noexcept { return frame_.blobs; }
  /// Copies the values of a message that arrived. Requires that this message has no values yet.
  void same_payload(const incoming_message& as);

  /// Finishes the parts of the record, then makes the frame. Sets counts, sizes and `flag_padded`
  /// of `header`. The message is empty afterwards.
  [[nodiscard]] frame finish(frame_header header) &&;

 private:
  void check_limits(std::uint64_t payload) const;

  const limits* limits_;
  frame frame_;
  message_extensions record_;
  bytes sections_;
  std::uint16_t section_count_ = 0;
  bool padded_ = false;  // zeros stand behind the values already
  writer writer_;
};

/// A message that arrived. Move-only; one thread at a time uses it. `limit` must outlive it.
class incoming_message {
 public:
  explicit incoming_message(frame f, const limits& limit = default_limits,
                            error allocation_error = {}) noexcept
      : limits_(&limit), frame_(std::move(f)), allocation_error_(std::move(allocation_error)) {}

  /// Checks the table against the header and the blobs. Call it once, before all other members. If
  /// it returns an error (`protocol_error`), call nothing else.
  [[nodiscard]] expected<void> check();

  [[nodiscard]] const frame_header& header() const noexcept { return frame_.header; }
  [[nodiscard]] std::optional<std::span<const std::byte>> section(section_kind kind) const noexcept;
  /// `bit_of(kind)` is set for each section of the message.
  [[nodiscard]] std::uint32_t section_bits() const noexcept { return section_bits_; }
  [[nodiscard]] const std::vector<blob>& blobs() const noexcept { return frame_.blobs; }
  [[nodiscard]] message_extensions& record() noexcept { return record_; }
  [[nodiscard]] const limits& limit() const noexcept { return *limits_; }
  /// All kinds that may be skipped have one bit.
  [[nodiscard]] static constexpr std::uint32_t bit_of(section_kind kind) noexcept {
    return may_be_skipped(kind) ? 1u << 31 : 1u << static_cast<unsigned>(kind);
  }
  /// Reads the values from the start. The reader uses this object, which must not move or die
  /// meanwhile.
  [[nodiscard]] reader payload() noexcept {
    const auto end =
        (frame_.header.flags & flag_padded) != 0 ? reader::tail::zeros : reader::tail::exact;
    return reader(frame_.payload(), record_, *limits_, end, this);
  }
  [[nodiscard]] const frame& whole() const noexcept { return frame_; }
  /// Its tensors are to come, by `take_blobs`. Until then its values must not be read.
  [[nodiscard]] bool awaits_blobs() const noexcept {
    return frame_.on_bulk() && frame_.blobs.empty() && !allocation_error_;
  }
  /// They have come, or `why` they have not. Requires that they have the lengths of the table.
  void take_blobs(std::vector<blob>&& blobs, error why) noexcept {
    frame_.blobs = std::move(blobs);
    allocation_error_ = std::move(why);
  }
  /// Success: the message is complete. An error: there was no memory for its values. Then they must
  /// not be read, and all sections except the tensors' one are there.
  [[nodiscard]] const error& allocation_error() const noexcept { return allocation_error_; }

 private:
  const limits* limits_;
  frame frame_;
  error allocation_error_;
  message_extensions record_;
  // Offset and length of each known section within the head, indexed by kind; no offset: absent.
  std::array<std::pair<std::uint64_t, std::uint32_t>, 5> sections_{};
  std::uint32_t section_bits_ = 0;
};

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/wire/impl/message.hpp>
#endif
