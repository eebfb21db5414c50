// SPDX-License-Identifier: BSL-1.0
// Bytes of the reference protocol: fixed width, little-endian, no padding left undefined.
//
//   rref_id   16   owner 4, creator 4, serial 8
//   transfer  24   rref_id 16, number 8             inside a payload
//   creation  24   rref_id 16, sequence 8           in the request's rref section
//   message   40   kind 1, why 1, zero 2, epoch 4, rref_id 16, sequence 8, transfer 8;
//                  a frame holds 1 to 512 of them, one behind another
//
// encode writes exactly that many bytes at the front of `to`; it returns false if they do not fit.
// decode reads them from the front of `from`. It returns nothing if bytes are missing, or if encode
// never writes such bytes (unknown kind, a field set that its kind does not have, serial 0).
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::rref_protocol {

inline constexpr std::size_t transfer_bytes = 24;
inline constexpr std::size_t creation_bytes = 24;
inline constexpr std::size_t message_bytes = 40;
inline constexpr std::size_t messages_per_frame = 512;
inline constexpr std::size_t references_per_message = 65536;

namespace detail {

using weft::detail::load;
using weft::detail::store;

constexpr void store_id(std::byte* to, const rref_id& id) noexcept {
  store(to, id.owner);
  store(to + 4, id.creator);
  store(to + 8, id.serial);
}
[[nodiscard]] constexpr rref_id load_id(const std::byte* from) noexcept {
  return {load<std::uint32_t>(from), load<std::uint32_t>(from + 4), load<std::uint64_t>(from + 8)};
}

constexpr bool encode_pair(const rref_id& id, std::uint64_t number,
                           std::span<std::byte> to) noexcept {
  if (to.size() < transfer_bytes) return false;
  store_id(to.data(), id);
  store(to.data() + 16, number);
  return true;
}

/// Which fields a kind has.
constexpr bool well_formed(const message& m) noexcept {
  if (m.id.serial == 0 || m.epoch == 0) return false;
  const bool sequenced = m.sequence != 0;
  const bool unexplained = m.why == cause::none;
  switch (m.kind) {
  case message_kind::add:
    return sequenced && unexplained;
  case message_kind::del:
  case message_kind::deled:
    return sequenced && unexplained && m.transfer == 0;
  case message_kind::added:
    return sequenced && m.transfer == 0;
  case message_kind::xack:
    return !sequenced && unexplained && m.transfer != 0;
  }
  return false;
}

}  // namespace detail

constexpr bool encode(const transfer& t, std::span<std::byte> to) noexcept {
  return detail::encode_pair(t.id, t.number, to);
}

constexpr bool encode(const creation& c, std::span<std::byte> to) noexcept {
  return detail::encode_pair(c.id, c.sequence, to);
}

constexpr bool encode(const message& m, std::span<std::byte> to) noexcept {
  if (to.size() < message_bytes) return false;
  std::byte* const at = to.data();
  detail::store(at, m.kind);
  detail::store(at + 1, m.why);
  detail::store(at + 2, std::uint16_t{0});
  detail::store(at + 4, m.epoch);
  detail::store_id(at + 8, m.id);
  detail::store(at + 24, m.sequence);
  detail::store(at + 32, m.transfer);
  return true;
}

[[nodiscard]] constexpr std::optional<transfer>
decode_transfer(std::span<const std::byte> from) noexcept {
  if (from.size() < transfer_bytes) return std::nullopt;
  const transfer t{detail::load_id(from.data()), detail::load<std::uint64_t>(from.data() + 16)};
  if (t.id.serial == 0 || t.number == 0) return std::nullopt;
  return t;
}

[[nodiscard]] constexpr std::optional<creation>
decode_creation(std::span<const std::byte> from) noexcept {
  if (from.size() < creation_bytes) return std::nullopt;
  const creation c{detail::load_id(from.data()), detail::load<std::uint64_t>(from.data() + 16)};
  if (c.id.serial == 0 || c.sequence == 0) return std::nullopt;
  return c;
}

[[nodiscard]] constexpr std::optional<message>
decode_message(std::span<const std::byte> from) noexcept {
  if (from.size() < message_bytes) return std::nullopt;
  using detail::load;
  const std::byte* const at = from.data();
  message m;
  const auto kind = load<std::uint8_t>(at);
  const auto why = load<std::uint8_t>(at + 1);
  const auto zero = load<std::uint16_t>(at + 2);
  if (kind >= message_kinds || why > static_cast<std::uint8_t>(cause::too_many) || zero != 0)
    return std::nullopt;
  m.kind = static_cast<message_kind>(kind);
  m.why = static_cast<cause>(why);
  m.epoch = load<std::uint32_t>(at + 4);
  m.id = detail::load_id(at + 8);
  m.sequence = load<std::uint64_t>(at + 24);
  m.transfer = load<std::uint64_t>(at + 32);
  if (!detail::well_formed(m)) return std::nullopt;
  return m;
}

}  // namespace weft::rref_protocol
