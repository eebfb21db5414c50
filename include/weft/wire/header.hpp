// SPDX-License-Identifier: BSL-1.0
// The wire page: how one frame looks. With this comment a peer can be written in any language.
//
// Everything is little-endian. A frame is
//
//   header    64 bytes, below
//   payload   header.payload_bytes: the values, written by codecs (wire/codec.hpp)
//   table     header.table_bytes: header.tensors buffer lengths of 8 bytes each, then
//             header.sections sections, each {kind 2, zero 2, length 4, bytes}
//   tensors   the buffers' bytes, one after another, in the order of their lengths
//
//   offset size field      meaning
//        0    4 magic      57 45 46 54, "WEFT"
//        4    1 version    1
//        5    1 kind       frame_kind
//        6    2 flags      bit 0: no reply wanted; bit 1: payload ends with zero padding;
//                          others zero
//        8    8 call       caller's slot: index in the low 32 bits, generation in the high 32
//       16    8 function   id of the function (rpc/identity.hpp), 0 in replies
//       24    4 signature  structural hash of result and parameters
//       28    4 deadline   µs left for this call when it was sent; 0: none applies (replies)
//       32    8 trace      low half of the trace id, 0: none
//       40    8 span       the caller's span, 0: none
//       48    2 sections   number of sections
//       50    2 tensors    number of tensor buffers
//       52    4 table      bytes of the table
//       56    8 payload    bytes of the payload
//
// A connection begins with one `hello` from the side that connected and one `welcome` or `refuse`
// from the other (rpc/session.hpp); each is at most 4 KiB and has no tensors. Whoever receives a
// header that breaks a rule of this page closes the connection; nothing is skipped.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/limits.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft {

enum class frame_kind : std::uint8_t {
  hello = 1,     ///< handshake: who connects
  welcome = 2,   ///< handshake: accepted
  refuse = 3,    ///< handshake: not accepted, payload is an error
  request = 4,   ///< run a function
  reply = 5,     ///< its result
  failure = 6,   ///< its error
  cancel = 7,    ///< the caller no longer waits
  control = 8,   ///< membership: end of a run, lost workers (rpc/membership.hpp)
  rref = 16,     ///< reference counting, n messages of 40 bytes (rref/ledger_wire.hpp)
  autograd = 24  ///< backward passes (autograd/wave.hpp)
};

/// Kinds of sections in the table.
enum class section_kind : std::uint16_t { tensors = 1, rref = 2, autograd = 3, trace = 4 };

inline constexpr std::uint16_t flag_no_reply = 1;
inline constexpr std::uint16_t flag_padded = 2;
inline constexpr std::uint16_t known_flags = flag_no_reply | flag_padded;

inline constexpr std::size_t header_size = 64;
inline constexpr std::uint32_t frame_magic = 0x54464557;  // "WEFT"
inline constexpr std::uint8_t wire_version = 1;

struct frame_header {
  frame_kind kind = frame_kind::request;
  std::uint16_t flags = 0;
  std::uint64_t call = 0;
  std::uint64_t function = 0;
  std::uint32_t signature = 0;
  std::uint32_t deadline_us = 0;
  std::uint64_t trace = 0;
  std::uint64_t span = 0;
  std::uint16_t sections = 0;
  std::uint16_t tensors = 0;
  std::uint32_t table_bytes = 0;
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const frame_header&, const frame_header&) = default;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "weft: little-endian machines only");

template <class T>
void store(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
[[nodiscard]] T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace detail

inline void encode_header(const frame_header& h, std::span<std::byte, header_size> out) noexcept {
  std::byte* p = out.data();
  detail::store(p + 0, frame_magic);
  detail::store(p + 4, wire_version);
  detail::store(p + 5, h.kind);
  detail::store(p + 6, h.flags);
  detail::store(p + 8, h.call);
  detail::store(p + 16, h.function);
  detail::store(p + 24, h.signature);
  detail::store(p + 28, h.deadline_us);
  detail::store(p + 32, h.trace);
  detail::store(p + 40, h.span);
  detail::store(p + 48, h.sections);
  detail::store(p + 50, h.tensors);
  detail::store(p + 52, h.table_bytes);
  detail::store(p + 56, h.payload_bytes);
}

/// Reads and checks a header against `limit`. Errors: version_mismatch, protocol_error,
/// message_too_large.
[[nodiscard]] inline expected<frame_header>
decode_header(std::span<const std::byte, header_size> in, const limits& limit) {
  using detail::load;
  const std::byte* p = in.data();
  auto refuse = [](errc code, std::string text) {
    return tl::unexpected(
        error(code, std::move(text), execution::maybe_executed, origin::transport));
  };
  if (load<std::uint32_t>(p) != frame_magic) {
    return refuse(errc::protocol_error, "the bytes are not a weft frame (wrong magic)");
  }
  if (const auto version = load<std::uint8_t>(p + 4); version != wire_version) {
    return refuse(errc::version_mismatch,
                  "the peer speaks wire version " + std::to_string(version) + ", this worker 1");
  }
  frame_header h;
  h.kind = load<frame_kind>(p + 5);
  h.flags = load<std::uint16_t>(p + 6);
  h.call = load<std::uint64_t>(p + 8);
  h.function = load<std::uint64_t>(p + 16);
  h.signature = load<std::uint32_t>(p + 24);
  h.deadline_us = load<std::uint32_t>(p + 28);
  h.trace = load<std::uint64_t>(p + 32);
  h.span = load<std::uint64_t>(p + 40);
  h.sections = load<std::uint16_t>(p + 48);
  h.tensors = load<std::uint16_t>(p + 50);
  h.table_bytes = load<std::uint32_t>(p + 52);
  h.payload_bytes = load<std::uint64_t>(p + 56);
  switch (h.kind) {
  case frame_kind::hello:
  case frame_kind::welcome:
  case frame_kind::refuse:
  case frame_kind::request:
  case frame_kind::reply:
  case frame_kind::failure:
  case frame_kind::cancel:
  case frame_kind::control:
  case frame_kind::rref:
  case frame_kind::autograd:
    break;
  default:
    return refuse(errc::protocol_error,
                  "unknown frame kind " + std::to_string(static_cast<int>(h.kind)));
  }
  if ((h.flags & ~known_flags) != 0) {
    return refuse(errc::protocol_error, "unknown frame flags " + std::to_string(h.flags));
  }
  if (h.payload_bytes > limit.payload) {
    return refuse(errc::message_too_large, "a payload of " + std::to_string(h.payload_bytes) +
                                               " bytes; the limit is " +
                                               std::to_string(limit.payload));
  }
  if (h.table_bytes > limit.table) {
    return refuse(errc::message_too_large, "a table of " + std::to_string(h.table_bytes) +
                                               " bytes; the limit is " +
                                               std::to_string(limit.table));
  }
  if (h.tensors > limit.tensors) {
    return refuse(errc::message_too_large, std::to_string(h.tensors) +
                                               " tensor buffers; the limit is " +
                                               std::to_string(limit.tensors));
  }
  if (std::uint64_t{h.tensors} * 8 + std::uint64_t{h.sections} * 8 > h.table_bytes) {
    return refuse(errc::protocol_error, "the table is shorter than its entries");
  }
  return h;
}

}  // namespace weft
