// SPDX-License-Identifier: BSL-1.0
// An index of a batch size.
#pragma once

#include <weft/tensordict/detail/words.hpp>

#include <ATen/TensorIndexing.h>

#include <cstddef>
#include <vector>

namespace weft::detail {

struct batch_index {
  std::vector<at::indexing::TensorIndex> index;  // of the batch size; no ellipsis
  batch_sizes batch;                             // of what it selects
  name_list names;
};

/// Throws `index`. `names` are those of the batch size, or none.
[[nodiscard]] batch_index understood(at::IntArrayRef batch, const name_list& names,
                                     at::ArrayRef<at::indexing::TensorIndex> index);
/// How many dimensions a part of an index selects from, but for an ellipsis.
[[nodiscard]] std::size_t dims_taken(const at::indexing::TensorIndex& i) noexcept;
/// What an index without ellipsis, of the leading dimensions, selects.
[[nodiscard]] tensordict_value index_stack(const lazy_stack& stack, at::IntArrayRef batch,
                                           std::vector<at::indexing::TensorIndex> index);

}  // namespace weft::detail
