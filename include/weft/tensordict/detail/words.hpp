// SPDX-License-Identifier: BSL-1.0
// Checks of tensordicts, and what they say.
#pragma once

#include <weft/tensordict/detail/node.hpp>

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::detail {

[[nodiscard]] std::string words(at::IntArrayRef sizes);
[[nodiscard]] std::string words(const nested_key& key);
[[noreturn]] void refuse_key(const tensordict_node& in, const nested_key& key);
void require_unlocked(const tensordict_node& node, const nested_key& key);
/// As libtorch has.
inline constexpr std::size_t most_dims = 64;
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
/// Along `key`, through lazy stacks by the numbers of their parts.
struct walked {
  const tensordict_value* value = nullptr;  // of the whole key; nullptr: it is not there
  bool through_stack = false;               // a lazy stack stands on the way
  const lazy_stack* stack = nullptr;        // in which its last name was looked for, if one
  std::size_t name = 0;                     // the last name that was looked for
};
[[nodiscard]] walked walk(const tensordict_node& root, const nested_key& key) noexcept;
[[nodiscard]] const tensordict_value& value_at(tensordict_node& root, const nested_key& key);
/// The number that `name` is, if the stack has so many parts; else npos.
[[nodiscard]] std::size_t part_number(const lazy_stack& stack, std::string_view name) noexcept;
[[noreturn]] void refuse_kind(const tensordict_value& value, const char* wanted,
                              const std::string& entry);
[[nodiscard]] bool begins_with(at::IntArrayRef sizes, at::IntArrayRef batch) noexcept;
/// That a tensor of these sizes can be written into one of those.
[[nodiscard]] bool can_broadcast(at::IntArrayRef from, at::IntArrayRef into) noexcept;
void require_broadcast(at::IntArrayRef from, at::IntArrayRef into, const nested_key& key);
void require_batch(at::IntArrayRef sizes, at::IntArrayRef batch, const nested_key& key);
void require_batch_of_all(const tensordict& td, at::IntArrayRef batch, key_path& path);
/// `value` as an entry of a tensordict of this batch size: a nested one of a smaller batch size
/// takes the larger one, in a copy of its dictionary.
[[nodiscard]] tensordict_value fit(tensordict_value value, at::IntArrayRef batch,
                                   const nested_key& key);
void take_over(const tensordict& from, tensordict& to, const nested_key& key);

/// Adds all tensors of `value`, in the order in which `mapped` makes them.
void list_leaves(const tensordict_value& value, key_path& path,
                 std::vector<std::pair<key_path, at::Tensor>>& out);
/// Whether `value` is that node, or has it, at any depth.
[[nodiscard]] bool has(const tensordict_value& value, const tensordict_node& node) noexcept;
[[nodiscard]] bool same(const nested_key& a, const nested_key& b) noexcept;
/// Whether `key` begins with `above`, and goes on.
[[nodiscard]] bool below(const nested_key& key, const nested_key& above) noexcept;

/// "next.reward" as the key of two names, and back.
[[nodiscard]] key_path split_name(std::string_view name, std::string_view separator = ".");
[[nodiscard]] std::string joined_name(const key_path& key, std::string_view separator = ".");

using name_list = std::vector<std::string>;

/// What follows the first `n` sizes. Throws `shape` if there are fewer: a tensor, or a nested
/// tensordict, may be changed in place through another handle.
[[nodiscard]] at::IntArrayRef rest_of(at::IntArrayRef sizes, std::size_t n);
/// `shape`, and what follows the first `n` of `sizes`.
[[nodiscard]] batch_sizes with_rest(at::IntArrayRef shape, at::IntArrayRef sizes, std::size_t n);
/// `batch` takes the place of the batch size of `td`, `names` that of its names; `f` makes the
/// tensors. Nested tensordicts keep their further dimensions. A lazy stack along one of these stays
/// one, and data keep their places; others go to `on_stack`, or are stacked.
using stack_map = c10::function_ref<tensordict_value(const lazy_stack&)>;
[[nodiscard]] tensordict reshaped(const tensordict& td, at::IntArrayRef batch,
                                  const name_list& names,
                                  c10::function_ref<at::Tensor(const at::Tensor&)> f,
                                  std::optional<stack_map> on_stack = std::nullopt);
/// As `reshaped`, by an `f` that computes with values: lazy stacks of data stay as they are if the
/// batch does, else are refused.
[[nodiscard]] tensordict computed(const tensordict& td, at::IntArrayRef batch,
                                  const name_list& names,
                                  c10::function_ref<at::Tensor(const at::Tensor&)> f);
/// With the lazy stacks along its own dimensions stacked.
[[nodiscard]] tensordict without_stacks(const tensordict& td);
/// The same sizes and names; `f` makes each tensor. Lazy stacks stay lazy.
[[nodiscard]] tensordict mapped(const tensordict& td,
                                c10::function_ref<at::Tensor(const at::Tensor&)> f);
[[nodiscard]] lazy_stack mapped(const lazy_stack& stack,
                                c10::function_ref<at::Tensor(const at::Tensor&)> f);
[[nodiscard]] batch_sizes without(at::IntArrayRef sizes, std::size_t dim);
/// The batch size of the parts of a lazy stack.
[[nodiscard]] batch_sizes part_batch(const lazy_stack& stack);
/// The batch size of a part of a lazy stack; tensors and data have `inner`.
[[nodiscard]] at::IntArrayRef batch_of(const tensordict_value& part, at::IntArrayRef inner);
/// `like`, of other parts.
[[nodiscard]] lazy_stack same_stack(const lazy_stack& like, std::vector<tensordict_value> parts);

/// Non-tensor data, one for each element of a batch: `items`, and an int64 tensor of the batch size
/// that says which of them an element has.
struct data_elements {
  std::vector<non_tensor> items;
  at::Tensor which;
};
[[nodiscard]] data_elements data_of(const tensordict_value& value, at::IntArrayRef batch);
[[nodiscard]] tensordict_value stack_of(const std::vector<non_tensor>& items,
                                        const at::Tensor& which);
inline tensordict_value stack_of(const data_elements& elements) {
  return stack_of(elements.items, elements.which);
}

/// `dim` of `of` dimensions, counted from the end if it is negative.
[[nodiscard]] std::int64_t wrap(std::int64_t dim, std::int64_t of, const char* what);

}  // namespace weft::detail
