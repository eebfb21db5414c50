// SPDX-License-Identifier: BSL-1.0
// Randomness: 128-bit ids, and a source that a simulator can own.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// Incarnations and job tokens. Printed as 32 hexadecimal digits.
struct id128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend constexpr auto operator<=>(const id128&, const id128&) = default;

  [[nodiscard]] std::string text() const {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out(32, '0');
    for (std::size_t i = 0; i < 16; ++i) {
      out[15 - i] = digits[(high >> (4 * i)) & 15];
      out[31 - i] = digits[(low >> (4 * i)) & 15];
    }
    return out;
  }
  [[nodiscard]] static std::optional<id128> parse(std::string_view text) {
    if (text.size() != 32) return std::nullopt;
    std::array<std::uint64_t, 2> word{};
    for (std::size_t i = 0; i < 32; ++i) {
      const char c = text[i];
      std::uint64_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<std::uint64_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<std::uint64_t>(c - 'a') + 10;
      } else {
        return std::nullopt;
      }
      word[i / 16] = word[i / 16] << 4 | digit;
    }
    return id128{word[0], word[1]};
  }
  /// Compares in a time that does not depend on where the two differ.
  [[nodiscard]] bool same_secret(const id128& other) const noexcept {
    volatile std::uint64_t difference = (high ^ other.high) | (low ^ other.low);
    return difference == 0;
  }
};

/// Each call gives 64 random bits.
using random_source = std::function<std::uint64_t()>;

/// The same source for several threads, which take turns.
[[nodiscard]] inline random_source one_at_a_time(random_source source) {
  struct shared {
    std::mutex mutex;
    random_source source;
  };
  auto made = std::make_shared<shared>();
  made->source = std::move(source);
  return [all = std::move(made)] {
    const std::lock_guard lock(all->mutex);
    return all->source();
  };
}

[[nodiscard]] inline id128 random_id(random_source& source) {
  const std::uint64_t high = source();
  return {high, source()};
}

}  // namespace weft
