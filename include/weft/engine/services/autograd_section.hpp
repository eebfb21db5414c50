// SPDX-License-Identifier: BSL-1.0
// The section of recorded messages, and lists of ranks (see autograd_service.hpp).
#pragma once

#include <weft/autograd/types.hpp>
#include <weft/core/detail/little_endian.hpp>
#include <weft/core/error.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/broken_protocol.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
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

/// What the section of a recorded message says.
struct recorded_message {
  context_id context = 0;
  message_id message = 0;  ///< 0: no tensor with grad
  mode how = mode::smart;
  std::vector<std::uint32_t> joined;
};
inline void append_message(bytes& to, const recorded_message& m) {
  to.number(m.context);
  to.number(m.message);
  to.number(static_cast<std::uint8_t>(m.how));
  append_ranks(to, m.joined);
}
/// Nothing if anything is wrong with the bytes.
[[nodiscard]] inline std::optional<recorded_message>
read_message(std::span<const std::byte> section, std::uint32_t world) {
  weft::detail::byte_source in(section);
  recorded_message m;
  m.context = in.get<context_id>();
  m.message = in.get<message_id>();
  m.how = in.get_enum(mode::fast);
  auto joined = read_ranks(in, world);
  if (!joined) return std::nullopt;
  m.joined = std::move(*joined);
  return m;
}

}  // namespace weft::autograd::detail
