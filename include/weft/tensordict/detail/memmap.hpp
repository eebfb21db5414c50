// SPDX-License-Identifier: BSL-1.0
// What reading and writing a folder of mapped files have in common.
#pragma once

#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/detail/node.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace weft::detail {

inline constexpr std::uint64_t most_meta_bytes = std::uint64_t{256} << 20;
/// A key as a file's name.
[[nodiscard]] std::string encoded_key(std::string_view key);
[[nodiscard]] place inside(const descriptor& folder, const std::filesystem::path& shown,
                           std::string name);
[[nodiscard]] bool is_there(const place& at);
/// Names that meta.json has for itself.
[[nodiscard]] bool is_of_format(std::string_view key) noexcept;

}  // namespace weft::detail
