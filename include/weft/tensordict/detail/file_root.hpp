// SPDX-License-Identifier: BSL-1.0
// What a file of tensordicts holds at its root.
#pragma once

#include <weft/tensordict/tensordict.hpp>

#include <concepts>
#include <filesystem>

namespace weft::detail {

[[nodiscard]] tensordict_value read_consolidated(const std::filesystem::path& file);
[[nodiscard]] tensordict_value read_memmap(const std::filesystem::path& folder, bool shared);
[[nodiscard]] tensordict_value read_safetensors(const std::filesystem::path& file);
[[noreturn]] void refuse_root(const tensordict_value& root, const std::filesystem::path& file);
/// What a file holds at its root.
template <class Root>
[[nodiscard]] Root root_of(const tensordict_value& root, const std::filesystem::path& file) {
  if constexpr (std::same_as<Root, lazy_stack>) {
    if (root.is_stack()) return root.stack();
  } else {
    if (root.is_dict()) return root.dict();
  }
  refuse_root(root, file);
}

}  // namespace weft::detail
