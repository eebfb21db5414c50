// SPDX-License-Identifier: BSL-1.0
// Paths in messages, for those who include <filesystem>: this header does not.
#pragma once

#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

namespace detail {
/// std::filesystem::path, on systems whose paths are bytes.
template <class T>
concept file_path = requires(const T& path) {
  typename T::format;
  { path.native() } -> std::same_as<const std::string&>;
  { path.lexically_normal() } -> std::same_as<T>;
};
}  // namespace detail

/// As the sender's system writes it; what it names on the receiver's is another matter.
template <detail::file_path T>
struct codec<T> {
  static constexpr std::size_t min_size = codec<std::string>::min_size;
  static void encode(writer& w, const T& value) { codec<std::string>::encode(w, value.native()); }
  static T decode(reader& r) { return T(codec<std::string>::decode(r)); }
};

template <detail::file_path T>
struct structure<T> {
  static constexpr std::string_view tag = "std::filesystem::path 1";
};

}  // namespace weft
