// SPDX-License-Identifier: BSL-1.0
// Tensordicts of different sizes or keys, as if they were stacked.
//
//   weft::lazy_stack episodes({short_one, long_one});   // "obs": [12, 4] and [80, 4]
//   td.set("episodes", episodes);
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/tensordict/key.hpp>

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

class tensordict;
class tensordict_value;
namespace detail {
struct lazy_node;
}

/// Python's LazyStackedTensorDict and NonTensorStack. Its parts have one batch size; their number
/// is one more size, at the stack dimension. Which parts it has never changes; copies share them.
///
/// In a tensordict, a part is reached by its number: td.get({"episodes", "0", "obs"}). Operations
/// that leave the parts as they are (those of each tensor; indexing; shapes of the dimensions
/// before the stack dimension) keep it lazy; others stack its tensors, and throw `shape` if their
/// sizes differ.
class lazy_stack {
 public:
  /// All tensordicts, all lazy stacks, all tensors (a ragged tensor, PyTorch's jagged one), or all
  /// non-tensor data. Tensors and data have the batch size `inner`. `dim` counts from the end if it
  /// is negative; `name` is the dimension's.
  explicit lazy_stack(std::vector<tensordict_value> parts, std::int64_t dim = 0,
                      std::string name = {}, at::IntArrayRef inner = {});

  [[nodiscard]] static lazy_stack of(const std::vector<tensordict>& parts, std::int64_t dim = 0,
                                     std::string name = {});

  [[nodiscard]] at::IntArrayRef batch_size() const noexcept;
  [[nodiscard]] std::int64_t dim() const noexcept;
  [[nodiscard]] std::int64_t stack_dim() const noexcept;
  /// Empty: it has none.
  [[nodiscard]] const std::string& stack_dim_name() const noexcept;
  [[nodiscard]] const std::vector<tensordict_value>& parts() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;
  /// Throws `index`.
  [[nodiscard]] const tensordict_value& operator[](std::size_t part) const;
  /// Its parts, or the parts of these, are non-tensor data.
  [[nodiscard]] bool is_data() const noexcept;
  /// Those that all parts have, in the order of the first one.
  [[nodiscard]] std::vector<std::string> keys() const;

  /// The tensors of all parts, stacked. Throws `shape` if their sizes differ, `no_key` if a part
  /// lacks it.
  [[nodiscard]] at::Tensor tensor(const nested_key& key) const;
  /// All that way.
  [[nodiscard]] tensordict dense() const;
  /// As of a tensor of the batch size.
  [[nodiscard]] tensordict_value index(at::ArrayRef<at::indexing::TensorIndex> index) const;

  /// As Python prints it within a tensordict: LazyStackedTensorDict[2]{obs: f32[-1,4]}.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] bool is_same(const lazy_stack& other) const noexcept {
    return node_ == other.node_;
  }

 private:
  friend struct detail::lazy_node;
  intrusive_ptr<ref_counted> node_;  // a detail::lazy_node
};

}  // namespace weft
