// SPDX-License-Identifier: BSL-1.0
// A whole frame in memory. Connections move frames.
//
//   head:  | header 64 | payload | table |        blobs: the tensor buffers, in table order
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/wire/blob.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/header.hpp>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace weft {

/// Move-only. `header` repeats the first 64 bytes of `head`; `seal()` makes them agree.
struct frame {
  frame_header header;
  bytes head;
  std::vector<blob> blobs;
  std::uint64_t caused = 0;  ///< bytes that answer its receiver's messages; not on the wire

  [[nodiscard]] std::span<const std::byte> payload() const noexcept {
    return head.view().subspan(header_size, header.payload_bytes);
  }
  [[nodiscard]] std::span<const std::byte> table() const noexcept {
    return head.view().subspan(header_size + header.payload_bytes, header.table_bytes);
  }
  /// Length of tensor buffer `i`, from the table. Requires i < header.tensors.
  [[nodiscard]] std::uint64_t blob_length(std::size_t i) const noexcept {
    return detail::load<std::uint64_t>(table().data() + 8 * i);
  }
  /// Its tensors travel elsewhere (wire/bulk.hpp), and may not be here.
  [[nodiscard]] bool on_bulk() const noexcept { return (header.flags & flag_bulk) != 0; }
  /// Bytes on the wire, where this travels.
  [[nodiscard]] std::uint64_t wire_size() const noexcept {
    return std::accumulate(blobs.begin(), blobs.end(), std::uint64_t{head.size()},
                           [](std::uint64_t sum, const blob& b) { return sum + b.size(); });
  }
  /// Writes `header` into the first 64 bytes of `head`.
  void seal() noexcept {
    encode_header(header, std::span<std::byte, header_size>(head.data(), header_size));
  }
};

}  // namespace weft
