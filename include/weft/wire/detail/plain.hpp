// SPDX-License-Identifier: BSL-1.0
// What several codecs share: single bytes with few meanings, and types copied as they lie.
#pragma once

#include <weft/wire/reader.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace weft::detail {

// A byte that must be zero, where nothing else is to be said.
inline void read_zero(reader& r) {
  if (r.number<std::uint8_t>() != 0) r.fail("a byte that must be zero is not");
}
[[nodiscard]] inline bool read_flag(reader& r) {
  const auto byte = r.number<std::uint8_t>();
  if (byte > 1) r.fail("a byte that must be 0 or 1 is " + std::to_string(byte));
  return byte == 1;
}

// With an underlying type that its declaration names, or scoped: every value of that type is one of
// the enum's. Only of those may a peer say which.
template <class T>
concept fixed_enum = std::is_enum_v<T> && requires { T{0}; };

// Copied as they lie in memory, many at once.
template <class T>
inline constexpr bool is_bulk =
    (std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double>) ||
    std::is_same_v<T, std::byte>;
template <class T>
inline constexpr bool is_bulk<std::complex<T>> = is_bulk<T>;

}  // namespace weft::detail
