// SPDX-License-Identifier: BSL-1.0
// The rref section of a message: its target, its creation, and the transfer of each reference.
//
//   {flags 1, target 16?, creation 24?, count 4, transfers 24 each}
//   flags, not zero in requests only: 1 a target follows, 2 a creation follows; plus 4 times the
//   number of workers that forwarded the request, because its target was a reference
#pragma once

#include <weft/core/error.hpp>
#include <weft/rref/ledger_types.hpp>
#include <weft/rref/ledger_wire.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/broken_protocol.hpp>
#include <weft/wire/message_extensions.hpp>
#include <weft/wire/reader.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft::rref_protocol {

/// At most so many workers forward a request, from reference to reference.
inline constexpr std::uint8_t most_forwards = 63;

struct section {
  std::optional<rref_id> target;   ///< the function runs on this object
  std::uint8_t forwards = 0;       ///< so many workers forwarded the request
  std::optional<creation> create;  ///< the result stays at the callee, under this id
  std::vector<transfer> transfers;
};

/// Appends the head of one section. Append its transfers behind it, by `append_transfer` for each.
inline void append_head(bytes& to, const std::optional<rref_id>& target, std::uint8_t forwards,
                        const std::optional<creation>& create, std::uint32_t transfers) {
  const auto flags = static_cast<std::uint8_t>((target ? 1 : 0) | (create ? 2 : 0) | forwards << 2);
  to.number(flags);
  if (target) {
    to.number(target->owner);
    to.number(target->creator);
    to.number(target->serial);
  }
  if (create) {
    std::byte out[creation_bytes];
    encode(*create, out);
    to.append(out, sizeof out);
  }
  to.number(transfers);
}
inline void append_transfer(bytes& to, const transfer& what) {
  std::byte out[transfer_bytes];
  encode(what, out);
  to.append(out, sizeof out);
}

/// Reads a section. Pure. protocol_error: no correct peer sends these bytes.
[[nodiscard]] inline expected<section> read_section(std::span<const std::byte> in, bool request) {
  const auto bad = [](const std::string& what) {
    return weft::detail::broken_protocol("an rref section " + what);
  };
  section out;
  try {
    message_extensions none;
    reader r(in, none);
    const auto flags = r.number<std::uint8_t>();
    if (flags != 0 && !request) return bad("with flags that only requests have");
    out.forwards = static_cast<std::uint8_t>(flags >> 2);
    if (out.forwards != 0 && (flags & 1) == 0) return bad("that was forwarded without a target");
    if ((flags & 1) != 0) {
      rref_id id;
      id.owner = r.number<std::uint32_t>();
      id.creator = r.number<std::uint32_t>();
      id.serial = r.number<std::uint64_t>();
      out.target = id;
    }
    if ((flags & 2) != 0) {
      out.create = decode_creation(r.raw(creation_bytes));
      if (!out.create) return bad("with a damaged creation");
    }
    const std::size_t count = r.count(transfer_bytes);
    if (count > references_per_message) return bad("with too many references");
    if (r.remaining() != count * transfer_bytes) return bad("whose count does not fit its length");
    out.transfers.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto what = decode_transfer(r.raw(transfer_bytes));
      if (!what) return bad("with a damaged transfer");
      out.transfers.push_back(*what);
    }
  } catch (const rpc_error& e) {
    return bad("that is too short: " + e.error().detail().text);
  }
  return out;
}

}  // namespace weft::rref_protocol
