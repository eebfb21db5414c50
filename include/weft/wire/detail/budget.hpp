// SPDX-License-Identifier: BSL-1.0
// What a receiver is ready to build from a payload, counted alike by sender and receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::detail {

/// Everything that codecs build out of a payload costs at most three times its bytes and 60 KiB;
/// with the received bytes themselves that is at most 4x + 64 KiB.
inline constexpr std::uint64_t budget_factor = 3;
inline constexpr std::uint64_t budget_free = 60 * 1024;

/// What an allocation costs beyond its elements.
inline constexpr std::size_t allocation_cost = 16;
/// What a node of a map, set or list costs beyond its value.
inline constexpr std::size_t node_cost = 48;

[[nodiscard]] constexpr std::uint64_t budget_of(std::uint64_t payload_bytes) noexcept {
  return budget_factor * payload_bytes + budget_free;
}
/// The shortest payload whose budget is at least `cost`.
[[nodiscard]] constexpr std::uint64_t payload_for(std::uint64_t cost) noexcept {
  return cost <= budget_free ? 0 : (cost - budget_free + budget_factor - 1) / budget_factor;
}
[[nodiscard]] constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  return b > most - a ? most : a + b;
}
[[nodiscard]] constexpr std::uint64_t saturating_multiply(std::uint64_t a,
                                                          std::uint64_t b) noexcept {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}

}  // namespace weft::detail
