// SPDX-License-Identifier: BSL-1.0
// The order that the indices of a coalesced sparse tensor have.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>

namespace weft::detail {

/// How column k of sparse indices, not the first, compares with the one before it.
[[nodiscard]] inline std::strong_ordering column_order(const std::int64_t* index, std::int64_t dims,
                                                       std::int64_t down, std::int64_t right,
                                                       std::int64_t k) noexcept {
  for (std::int64_t i = 0; i < dims; ++i) {
    const auto order = index[i * down + k * right] <=> index[i * down + (k - 1) * right];
    if (order != 0) return order;
  }
  return std::strong_ordering::equal;
}

/// Whether they are those of a coalesced tensor: sorted, and none twice. libtorch itself says so of
/// some that are not, as of s.permute(...).
[[nodiscard]] inline bool are_coalesced(const at::Tensor& indices) {
  const std::int64_t nonzeros = indices.size(1);
  if (nonzeros < 2) return true;
  const auto* index = static_cast<const std::int64_t*>(indices.const_data_ptr());
  for (std::int64_t k = 1; k < nonzeros; ++k) {
    if (column_order(index, indices.size(0), indices.stride(0), indices.stride(1), k) <= 0) {
      return false;
    }
  }
  return true;
}

}  // namespace weft::detail
