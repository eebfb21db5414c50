// SPDX-License-Identifier: BSL-1.0
// Paths in messages. Include <filesystem> yourself: this header does not.
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

/// A path, as the sender's system writes it. It may name another file at the receiver, or none.
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
