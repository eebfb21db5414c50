// SPDX-License-Identifier: BSL-1.0
// How tensors lie in one buffer, and the names of dtypes.
#pragma once

#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <nlohmann/json_fwd.hpp>

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::detail {

// ── dtypes ──

/// "torch.float32"; empty: files have no such tensors.
[[nodiscard]] std::string_view torch_name(at::ScalarType type) noexcept;
[[nodiscard]] std::optional<at::ScalarType> from_torch_name(std::string_view name) noexcept;
/// "F32"; empty: safetensors has no such tensors.
[[nodiscard]] std::string_view safetensors_name(at::ScalarType type) noexcept;
[[nodiscard]] std::optional<at::ScalarType> from_safetensors_name(std::string_view name) noexcept;

// ── a buffer ──

/// Throws `kind`, naming the key, for a tensor that is not dense on the CPU, or of such a dtype.
void require_plain(const at::Tensor& tensor, const nested_key& key);
/// Its values alone, one behind the other.
[[nodiscard]] at::Tensor plain_of(const at::Tensor& tensor);
/// That each byte of a bool tensor is 0 or 1: throws `format`.
void require_bools(const at::Tensor& tensor, const nested_key& key);
struct plain_leaf {
  key_path key;
  at::Tensor tensor;  // contiguous, without a history
  std::int64_t begin = 0;
  std::int64_t end = 0;  // what follows the tensor's bytes is padding
};
/// All tensors of `value`, in the order in which `mapped` meets them, and where they go.
struct buffer_plan {
  std::vector<plain_leaf> leaves;
  std::int64_t total = 0;
};
inline constexpr std::int64_t leaf_alignment = 64;
/// `history`: whether tensors that require gradients are an error.
enum class history : bool { dropped, refused };
[[nodiscard]] buffer_plan plan_buffer(const tensordict_value& value,
                                      history gradients = history::dropped);

/// A tensor over bytes of `buffer`, which is uint8 and contiguous; `begin` fits the dtype.
[[nodiscard]] at::Tensor view_of(const at::Tensor& buffer, std::int64_t begin, at::ScalarType type,
                                 at::IntArrayRef sizes);
/// The same where it fits, else a copy. Its bools are checked.
[[nodiscard]] at::Tensor tensor_in(const at::Tensor& buffer, std::int64_t begin,
                                   at::ScalarType type, at::IntArrayRef sizes,
                                   const nested_key& key);
[[nodiscard]] bool is_aligned(std::int64_t begin, at::ScalarType type) noexcept;
/// Bytes of a tensor of these sizes; none: a size is negative, or they cannot be counted.
[[nodiscard]] std::optional<std::int64_t> bytes_of(at::IntArrayRef sizes,
                                                   at::ScalarType type) noexcept;

// ── what files say ──

/// A list of sizes; throws `format`.
[[nodiscard]] std::vector<std::int64_t> sizes_in(const nlohmann::ordered_json& list);
/// A list of names, some null; or null. Throws `format`.
[[nodiscard]] name_list names_in(const nlohmann::ordered_json& list);
[[nodiscard]] nlohmann::ordered_json names_for(const tensordict_node& node);
/// Where a lazy stack is stacked: "stack_dim", and "stack_dim_name", which may be missing or null.
struct stack_place {
  std::int64_t dim;
  std::string name;
};
[[nodiscard]] stack_place stack_place_in(const nlohmann::ordered_json& about);
/// Sets an entry that a file has. Throws `format` if it is there.
void set_read(tensordict& td, const std::string& key, tensordict_value value);
[[noreturn]] void refuse_reserved(const std::string& key);
/// The member, else `format`.
[[nodiscard]] const nlohmann::ordered_json& json_member(const nlohmann::ordered_json& object,
                                                        const char* name);
/// More levels than that are an error `format`.
inline constexpr int most_levels = 100;
void require_level(int level);

}  // namespace weft::detail
