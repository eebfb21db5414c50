// SPDX-License-Identifier: BSL-1.0
// Bytes of the reference protocol: fixed width, little-endian, no padding left undefined.
//
//   rref_id   16   owner 4, creator 4, serial 8
//   transfer  24   rref_id 16, number 8             inside a payload
//   creation  24   rref_id 16, sequence 8           in the request's rref section
//   message   40   kind 1, why 1, zero 2, epoch 4, rref_id 16, sequence 8, transfer 8;
//                  a frame holds 1 to 512 of them, one behind another
//
// encode writes exactly that many bytes at the front of `to` and says false if they do not fit.
// decode reads them from the front of `from`; it returns nothing if bytes are missing or if they
// are not what encode writes (unknown kind, a field set that its kind does not have, serial 0).
#pragma once

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

template <class Integer>
constexpr std::byte* put(std::byte* at, Integer value) noexcept {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    *at++ = static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xffu);
  return at;
}

template <class Integer>
constexpr Integer take(const std::byte*& at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value |= std::to_integer<std::uint64_t>(*at++) << (8 * i);
  return static_cast<Integer>(value);
}

constexpr std::byte* put_id(std::byte* at, const rref_id& id) noexcept {
  return put(put(put(at, id.owner), id.creator), id.serial);
}

constexpr rref_id take_id(const std::byte*& at) noexcept {
  rref_id id;
  id.owner = take<std::uint32_t>(at);
  id.creator = take<std::uint32_t>(at);
  id.serial = take<std::uint64_t>(at);
  return id;
}

constexpr bool encode_pair(const rref_id& id, std::uint64_t number,
                           std::span<std::byte> to) noexcept {
  if (to.size() < transfer_bytes) return false;
  put(put_id(to.data(), id), number);
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
  std::byte* at = to.data();
  at = detail::put(at, static_cast<std::uint8_t>(m.kind));
  at = detail::put(at, static_cast<std::uint8_t>(m.why));
  at = detail::put(at, std::uint16_t{0});
  at = detail::put(at, m.epoch);
  at = detail::put_id(at, m.id);
  at = detail::put(at, m.sequence);
  detail::put(at, m.transfer);
  return true;
}

[[nodiscard]] constexpr std::optional<transfer>
decode_transfer(std::span<const std::byte> from) noexcept {
  if (from.size() < transfer_bytes) return std::nullopt;
  const std::byte* at = from.data();
  transfer t;
  t.id = detail::take_id(at);
  t.number = detail::take<std::uint64_t>(at);
  if (t.id.serial == 0 || t.number == 0) return std::nullopt;
  return t;
}

[[nodiscard]] constexpr std::optional<creation>
decode_creation(std::span<const std::byte> from) noexcept {
  if (from.size() < creation_bytes) return std::nullopt;
  const std::byte* at = from.data();
  creation c;
  c.id = detail::take_id(at);
  c.sequence = detail::take<std::uint64_t>(at);
  if (c.id.serial == 0 || c.sequence == 0) return std::nullopt;
  return c;
}

[[nodiscard]] constexpr std::optional<message>
decode_message(std::span<const std::byte> from) noexcept {
  if (from.size() < message_bytes) return std::nullopt;
  const std::byte* at = from.data();
  message m;
  const auto kind = detail::take<std::uint8_t>(at);
  const auto why = detail::take<std::uint8_t>(at);
  const auto zero = detail::take<std::uint16_t>(at);
  if (kind >= message_kinds || why > static_cast<std::uint8_t>(cause::too_many) || zero != 0)
    return std::nullopt;
  m.kind = static_cast<message_kind>(kind);
  m.why = static_cast<cause>(why);
  m.epoch = detail::take<std::uint32_t>(at);
  m.id = detail::take_id(at);
  m.sequence = detail::take<std::uint64_t>(at);
  m.transfer = detail::take<std::uint64_t>(at);
  if (!detail::well_formed(m)) return std::nullopt;
  return m;
}

}  // namespace weft::rref_protocol
