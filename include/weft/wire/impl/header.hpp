// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/wire/header.hpp.
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/core/error.hpp>
#include <weft/wire/header.hpp>
#include <weft/wire/limits.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace weft {

WEFT_DECL void encode_header(const frame_header& h,
                             std::span<std::byte, header_size> out) noexcept {
  std::byte* p = out.data();
  detail::store(p + 0, frame_magic);
  detail::store(p + 4, wire_version);
  detail::store(p + 5, h.kind);
  detail::store(p + 6, h.flags);
  detail::store(p + 8, h.call);
  detail::store(p + 16, h.function);
  detail::store(p + 24, h.signature);
  detail::store(p + 28, h.deadline);
  detail::store(p + 32, h.trace);
  detail::store(p + 40, h.span);
  detail::store(p + 48, h.sections);
  detail::store(p + 50, h.tensors);
  detail::store(p + 52, h.table_bytes);
  detail::store(p + 56, h.payload_bytes);
}

WEFT_DECL expected<frame_header> decode_header(std::span<const std::byte, header_size> in,
                                               const limits& limit) {
  using detail::load;
  const std::byte* p = in.data();
  auto refuse = [](errc code, std::string text) {
    return tl::unexpected(
        error(code, std::move(text), call_progress::maybe_executed, origin::transport));
  };
  if (load<std::uint32_t>(p) != frame_magic) {
    return refuse(errc::protocol_error, "the bytes are not a weft frame (wrong magic)");
  }
  if (const auto version = load<std::uint8_t>(p + 4); version != wire_version) {
    return refuse(errc::version_mismatch, "the peer speaks wire version " +
                                              std::to_string(version) + ", this worker " +
                                              std::to_string(wire_version));
  }
  frame_header h;
  h.kind = load<frame_kind>(p + 5);
  h.flags = load<std::uint16_t>(p + 6);
  h.call = load<std::uint64_t>(p + 8);
  h.function = load<std::uint64_t>(p + 16);
  h.signature = load<std::uint32_t>(p + 24);
  h.deadline = load<std::uint32_t>(p + 28);
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
  case frame_kind::ping:
  case frame_kind::window:
  case frame_kind::bulk:
  case frame_kind::challenge:
  case frame_kind::proof:
  case frame_kind::ready:
  case frame_kind::rref:
  case frame_kind::autograd:
    break;
  default:
    if (is_of_other_services(h.kind)) break;
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
  if ((h.flags & flag_bulk) != 0 && h.tensors == 0) {
    return refuse(errc::protocol_error, "a frame says that it has large tensors, and has none");
  }
  return h;
}

}  // namespace weft
