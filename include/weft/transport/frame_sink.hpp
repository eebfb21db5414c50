// SPDX-License-Identifier: BSL-1.0
// What a connection reads into. A link implements it.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/blob.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/limits.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

/// What is left of a frame for which memory lacked. Never its tensors and what describes them.
enum class partial_frame : std::uint8_t {
  head,      ///< header, payload and sections: only tensors are gone
  sections,  ///< header and sections: the payload is gone, too
  header     ///< not even its sections
};

/// What it says is said once, and services or the link count on it: it cannot be lost alone.
[[nodiscard]] inline bool must_arrive(const frame_header& header) noexcept {
  const bool of_a_call = header.kind == frame_kind::request || is_answer(header.kind);
  return !of_a_call || header.sections > (header.tensors > 0 ? 1 : 0);
}

/// Called only from within `connection::read`, on the connection's I/O thread.
class frame_sink {
 public:
  /// What the peer may ask for now; the handshake's limits until it is over.
  [[nodiscard]] virtual const limits& bounds() const noexcept = 0;
  /// Memory for a tensor buffer of `bytes` > 0 bytes. resource_exhausted: the frame is skipped, and
  /// `frame_skipped` gets its header. Other errors end the read with that error.
  [[nodiscard]] virtual expected<blob> allocate(std::size_t bytes) = 0;
  /// A whole, checked frame, in the order of sending. An error ends the read with it.
  [[nodiscard]] virtual expected<void> frame_arrived(frame&& f) = 0;
  /// A frame of `bytes` on the wire for which memory lacked, after they went by. `rest` is a whole
  /// frame of what is left, whose header says no more than that; of partial_frame::header only the
  /// header, as it came. An error ends the read with it.
  [[nodiscard]] virtual expected<void> frame_skipped(frame&& rest, partial_frame what,
                                                     std::uint64_t bytes, error why) {
    static_cast<void>(rest), static_cast<void>(what), static_cast<void>(bytes);
    return unexpected(std::move(why));
  }
  /// Bytes arrived, of whatever frame.
  virtual void progress() noexcept = 0;

 protected:
  frame_sink() = default;
  frame_sink(const frame_sink&) = default;
  frame_sink& operator=(const frame_sink&) = default;
  ~frame_sink() = default;
};

}  // namespace weft
