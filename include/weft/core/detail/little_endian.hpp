// SPDX-License-Identifier: BSL-1.0
// Numbers as bytes, little-endian and of fixed width: what headers, sections and protocol messages
// are written and read with. Payloads have weft::writer and weft::reader on top, which throw typed
// errors and charge for memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::detail {

static_assert(std::endian::native == std::endian::little, "weft: little-endian machines only");

/// At `to`, where sizeof(T) bytes are.
template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
constexpr void store(std::byte* to, T value) noexcept {
  const auto image = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::copy(image.begin(), image.end(), to);
}
template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
[[nodiscard]] constexpr T load(const std::byte* from) noexcept {
  std::array<std::byte, sizeof(T)> image{};
  std::copy_n(from, sizeof(T), image.begin());
  return std::bit_cast<T>(image);
}

/// Writes one number behind another.
class byte_sink {
 public:
  template <class T>
  void put(T value) {
    std::byte image[sizeof(T)];
    store(image, value);
    bytes_.insert(bytes_.end(), image, image + sizeof(T));
  }
  /// How many as 32 bits, then each.
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T value : values) put(value);
  }
  void put_raw(std::span<const std::byte> raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a byte_sink wrote, from bytes that anybody may have sent. Once something is not
/// there, `ok()` stays false and all that is read is zero or empty: ask once, at the end. Allocates
/// nothing that the bytes do not pay for.
class byte_source {
 public:
  explicit byte_source(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <class T>
  [[nodiscard]] T get() noexcept {
    const auto raw = get_raw(sizeof(T));
    return ok_ ? load<T>(raw.data()) : T{};
  }
  template <class T>
  [[nodiscard]] std::vector<T> get_all() {
    const auto count = get<std::uint32_t>();
    if (count > bytes_.size() / sizeof(T)) fail();
    std::vector<T> values(ok_ ? count : 0);
    for (T& value : values) value = get<T>();
    return values;
  }
  [[nodiscard]] std::span<const std::byte> get_raw(std::size_t count) noexcept {
    if (count > bytes_.size()) fail();
    if (!ok_) return {};
    const auto raw = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return raw;
  }
  /// An enumerator of `E` counted from zero to `last`.
  template <class E>
  [[nodiscard]] E get_enum(E last) noexcept {
    const auto value = get<std::underlying_type_t<E>>();
    if (value > static_cast<std::underlying_type_t<E>>(last)) fail();
    return ok_ ? static_cast<E>(value) : E{};
  }
  void fail() noexcept { ok_ = false; }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  /// Everything was there, and nothing is left.
  [[nodiscard]] bool at_end() const noexcept { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace weft::detail
