// SPDX-License-Identifier: BSL-1.0
// A frame without its tensors: what is left of one for which memory lacked.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/detail/broken_protocol.hpp>
#include <weft/wire/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::detail {

/// Takes buffers, their lengths and their section out of a frame whose head is whole, in place; the
/// payload and the other sections stay. Allocates nothing. Errors: protocol_error, for a table that
/// is not as it says; the frame is of no use then.
[[nodiscard]] inline expected<void> drop_tensors(frame& f) {
  frame_header& h = f.header;
  std::byte* const table = f.head.data() + header_size + h.payload_bytes;
  std::size_t from = std::size_t{8} * h.tensors;
  std::size_t to = 0;
  std::uint16_t kept = 0;
  for (std::uint16_t i = 0; i < h.sections; ++i) {
    const std::size_t left = h.table_bytes - from;
    const std::size_t size = left < 8 ? 8 : std::size_t{8} + load<std::uint32_t>(table + from + 4);
    if (size > left) {
      return broken_protocol("the table ends inside a section");
    }
    if (load<section_kind>(table + from) != section_kind::tensors) {
      std::memmove(table + to, table + from, size);
      to += size;
      ++kept;
    }
    from += size;
  }
  if (from != h.table_bytes) {
    return broken_protocol("the table is longer than its sections");
  }
  f.blobs.clear();
  h.tensors = 0;
  h.sections = kept;
  h.table_bytes = static_cast<std::uint32_t>(to);
  f.head.resize(header_size + h.payload_bytes + to);
  f.seal();
  return {};
}

}  // namespace weft::detail
