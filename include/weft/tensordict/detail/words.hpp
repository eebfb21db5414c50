// SPDX-License-Identifier: BSL-1.0
// Checks of tensordicts, and what they say.
#pragma once

#include <weft/tensordict/detail/node.hpp>

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft::detail {

[[nodiscard]] std::string words(at::IntArrayRef sizes);
[[nodiscard]] std::string words(const nested_key& key);
[[noreturn]] void refuse_key(const tensordict_node& in, const nested_key& key);
void require_unlocked(const tensordict_node& node, const nested_key& key);
/// A batch size: nothing is negative, and all products can be computed.
void require_sizes(at::IntArrayRef batch);
/// How far `key` leads in `root`: to the node that has, or would have, its name `depth`. Throws if
/// one of the names before is a tensor's.
struct reached {
  tensordict_node* in;
  std::size_t depth;
};
[[nodiscard]] reached reach(tensordict_node& root, const nested_key& key);
[[nodiscard]] tensordict_node& parent_of(tensordict_node& root, const nested_key& key);
[[nodiscard]] bool begins_with(at::IntArrayRef sizes, at::IntArrayRef batch) noexcept;
/// That a tensor of these sizes can be written into one of those.
[[nodiscard]] bool broadcasts(at::IntArrayRef from, at::IntArrayRef into) noexcept;
void require_broadcast(at::IntArrayRef from, at::IntArrayRef into, const nested_key& key);
void require_batch(at::IntArrayRef sizes, at::IntArrayRef batch, const nested_key& key);
void require_batch_of_all(const tensordict& td, at::IntArrayRef batch, key_path& path);
/// `value` as an entry of a tensordict of this batch size: a nested one of a smaller batch size
/// takes the larger one, in a copy of its dictionary.
[[nodiscard]] tensordict_value fit(tensordict_value value, at::IntArrayRef batch,
                                   const nested_key& key);
void take_over(const tensordict& from, tensordict& to, const nested_key& key);

/// Whether `td` is that node, or has it, at any depth.
[[nodiscard]] bool has(const tensordict& td, const tensordict_node& node) noexcept;
[[nodiscard]] bool same(const nested_key& a, const nested_key& b) noexcept;
/// Whether `key` begins with `above`, and goes on.
[[nodiscard]] bool below(const nested_key& key, const nested_key& above) noexcept;

using name_list = std::vector<std::string>;

/// What follows the first `n` sizes. Throws `shape` if there are fewer: a tensor, or a nested
/// tensordict, may be changed in place through another handle.
[[nodiscard]] at::IntArrayRef rest_of(at::IntArrayRef sizes, std::size_t n);
/// `shape`, and what follows the first `n` of `sizes`.
[[nodiscard]] batch_sizes with_rest(at::IntArrayRef shape, at::IntArrayRef sizes, std::size_t n);
/// `batch` takes the place of the batch size of `td`, `names` that of its names; `f` makes the
/// tensors. Nested tensordicts keep their further dimensions.
[[nodiscard]] tensordict reshaped(const tensordict& td, at::IntArrayRef batch,
                                  const name_list& names,
                                  c10::function_ref<at::Tensor(const at::Tensor&)> f);

/// `dim` of `of` dimensions, counted from the end if it is negative.
[[nodiscard]] std::int64_t wrap(std::int64_t dim, std::int64_t of, const char* what);

}  // namespace weft::detail
