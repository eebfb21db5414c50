// SPDX-License-Identifier: BSL-1.0
// Where a section stands in a frame whose table has not been checked.
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/wire/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::detail {

/// With its own head of 8 bytes; empty: there is none, or the table is wrong.
[[nodiscard]] inline std::span<const std::byte> section_of(const frame& f,
                                                           section_kind kind) noexcept {
  const auto table = f.table();
  std::size_t at = std::size_t{8} * f.header.tensors;
  for (std::uint16_t i = 0; i < f.header.sections; ++i) {
    if (at > table.size() || table.size() - at < 8) return {};
    const std::size_t size = std::size_t{8} + load<std::uint32_t>(table.data() + at + 4);
    if (size > table.size() - at) return {};
    if (load<section_kind>(table.data() + at) == kind) return table.subspan(at, size);
    at += size;
  }
  return {};
}

}  // namespace weft::detail
