// SPDX-License-Identifier: BSL-1.0
// The receiver of a connection's frames. A link implements it.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/blob.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/given_memory.hpp>
#include <weft/wire/limits.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

/// The rest of a frame for which memory was short. It never has tensors, nor their descriptors.
enum class partial_frame : std::uint8_t {
  head,      ///< header, payload and sections: only tensors are gone
  sections,  ///< header and sections: the payload is gone, too
  header     ///< not even its sections
};

/// True if the frame must not be lost alone: its content is sent once, and services or the link
/// count on it.
[[nodiscard]] inline bool must_arrive(const frame_header& header) noexcept {
  const bool of_a_call = header.kind == frame_kind::request || is_answer(header.kind);
  return !of_a_call || header.sections > (header.tensors > 0 ? 1 : 0);
}

/// Its members are called only within `connection::read`, on the connection's I/O thread.
class frame_sink {
 public:
  /// The limits of what the peer may send now. Until the handshake ends, those of the handshake.
  [[nodiscard]] virtual const limits& bounds() const noexcept = 0;
  /// Memory for a tensor buffer of `bytes` > 0 bytes. resource_exhausted: the frame is skipped, and
  /// `frame_skipped` gets its header. Other errors end the read with that error.
  [[nodiscard]] virtual expected<blob> allocate(std::size_t bytes) = 0;
  /// Memory that somebody gave for the tensors of this frame; its header, payload and table are
  /// complete and checked, its tensors have not been read. Null: nobody did, all are allocated.
  [[nodiscard]] virtual intrusive_ptr<given_memory> given_for(const frame& head) {
    static_cast<void>(head);
    return nullptr;
  }
  /// A whole, checked frame, in the order of sending. An error ends the read with it.
  [[nodiscard]] virtual expected<void> frame_arrived(frame&& f) = 0;
  /// A frame of `bytes` bytes on the wire was skipped, because memory was short. `rest` is a whole
  /// frame of what is left, and its header says only that. With partial_frame::header it is only
  /// the header, as it came. An error ends the read with it.
  [[nodiscard]] virtual expected<void> frame_skipped(frame&& rest, partial_frame what,
                                                     std::uint64_t bytes, error why) {
    static_cast<void>(rest), static_cast<void>(what), static_cast<void>(bytes);
    return unexpected(std::move(why));
  }
  /// Bytes of any frame have arrived.
  virtual void progress() noexcept = 0;

 protected:
  frame_sink() = default;
  frame_sink(const frame_sink&) = default;
  frame_sink& operator=(const frame_sink&) = default;
  ~frame_sink() = default;
};

}  // namespace weft
