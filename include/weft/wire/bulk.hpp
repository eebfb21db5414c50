// SPDX-License-Identifier: BSL-1.0
// A frame in two parts, each for a connection of its own: its head, and its tensors.
//
//   [ head | tensors ] ──split──► [ head, flag_bulk ]         ──► calls, in order
//                                 [ bulk: lengths | tensors ] ──► bulk, in order
#pragma once

#include <weft/wire/detail/section_of.hpp>
#include <weft/wire/frame.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace weft {

/// Bytes of a request's payload that its bulk frame repeats, so that a function can be asked where
/// its tensors go.
inline constexpr std::uint64_t bulk_payload_bytes = 256;

/// The kind of the frame to which a bulk frame belongs.
[[nodiscard]] inline frame_kind kind_behind(const frame_header& bulk) noexcept {
  return static_cast<frame_kind>(bulk.deadline);
}

/// Takes the tensors out of a sealed frame that has some. Returns their bulk frame, sealed; `f` is
/// sealed again. Throws std::bad_alloc, and leaves `f` alone then.
[[nodiscard]] inline frame split_bulk(frame& f) {
  const auto table = f.table();
  const std::size_t lengths = std::size_t{8} * f.header.tensors;
  const auto descriptors = detail::section_of(f, section_kind::tensors);
  const bool request = f.header.kind == frame_kind::request;
  frame out;
  frame_header& h = out.header;
  h.kind = frame_kind::bulk;
  h.call = f.header.call;
  h.deadline = static_cast<std::uint32_t>(f.header.kind);
  if (request) {
    h.function = f.header.function;
    h.signature = f.header.signature;
    h.payload_bytes = std::min(f.header.payload_bytes, bulk_payload_bytes);
  }
  h.tensors = f.header.tensors;
  h.sections = descriptors.empty() ? 0 : 1;
  h.table_bytes = static_cast<std::uint32_t>(lengths + descriptors.size());
  out.head.resize(header_size);
  out.head.append(f.payload().data(), h.payload_bytes);
  out.head.append(table.data(), lengths);
  out.head.append(descriptors.data(), descriptors.size());
  out.seal();
  out.blobs = std::move(f.blobs);
  f.blobs.clear();
  f.header.flags |= flag_bulk;
  f.seal();
  return out;
}

/// Whether that bulk frame is what `split_bulk` gives for a frame with that head: whoever asked it
/// where its tensors go has been told what the head says.
[[nodiscard]] inline bool belongs_to(const frame& bulk, const frame& head) noexcept {
  const frame_header& b = bulk.header;
  const frame_header& h = head.header;
  const bool request = h.kind == frame_kind::request;
  const auto same = [](std::span<const std::byte> one, std::span<const std::byte> other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end());
  };
  const std::uint64_t payload = request ? std::min(h.payload_bytes, bulk_payload_bytes) : 0;
  const std::size_t lengths = std::size_t{8} * h.tensors;
  return b.call == h.call && kind_behind(b) == h.kind && b.tensors == h.tensors &&
         (!request || (b.function == h.function && b.signature == h.signature)) &&
         same(bulk.payload(), head.payload().first(payload)) &&
         same(bulk.table().first(lengths), head.table().first(lengths)) &&
         same(detail::section_of(bulk, section_kind::tensors),
              detail::section_of(head, section_kind::tensors));
}

}  // namespace weft
