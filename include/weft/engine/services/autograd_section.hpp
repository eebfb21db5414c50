// SPDX-License-Identifier: BSL-1.0
// The lists of ranks in what autograd services send one another (see autograd_service.hpp).
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/core/error.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/broken_protocol.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::autograd::detail {

/// The ranks behind the rest of `in`, all below `world` and no more; nothing if anything is wrong
/// with the bytes, those read before included.
[[nodiscard]] inline std::optional<std::vector<std::uint32_t>>
read_ranks(weft::detail::byte_source& in, std::uint32_t world) {
  const auto count = in.get<std::uint32_t>();
  if (count > world) return std::nullopt;  // before it asks for memory
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t& r : out) r = in.get<std::uint32_t>();
  const auto is_rank = [world](std::uint32_t r) { return r < world; };
  if (!in.at_end() || !std::all_of(out.begin(), out.end(), is_rank)) return std::nullopt;
  return out;
}

/// As `read_ranks` reads them.
inline void append_ranks(bytes& to, const std::vector<std::uint32_t>& ranks) {
  to.number(static_cast<std::uint32_t>(ranks.size()));
  for (const std::uint32_t r : ranks) to.number(r);
}

}  // namespace weft::autograd::detail
