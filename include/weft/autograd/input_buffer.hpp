// SPDX-License-Identifier: BSL-1.0
// Collects the gradients that flow into one node. Sums those that meet in one slot.
#pragma once

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft::autograd {

/// One slot per input of the node, made when the first gradient comes. Sums are recorded if the
/// thread records. Not thread-safe.
class input_buffer {
 public:
  /// Undefined gradients leave the slot as it is.
  void add(std::uint32_t slot, at::Tensor&& gradient);

  /// Takes the `size` collected inputs; an input is undefined if nothing came. Empties the buffer.
  torch::autograd::variable_list take(std::size_t size) {
    slots_.resize(size);
    return std::move(slots_);
  }

 private:
  /// Nobody else can see the tensor or its memory, and adding to it changes nothing else.
  static bool writable(const at::Tensor& t) {
    return t.layout() == at::kStrided && t.use_count() == 1 && t.has_storage() &&
           t.storage().use_count() == 1 && t.is_non_overlapping_and_dense() &&
           !t._is_zerotensor() && !at::isTensorSubclassLike(t);
  }

  torch::autograd::variable_list slots_;
};

inline void input_buffer::add(std::uint32_t slot, at::Tensor&& gradient) {
  if (!gradient.defined()) return;
  if (slot >= slots_.size()) slots_.resize(slot + std::size_t{1});
  at::Tensor& sum = slots_[slot];
  const bool in_place = !at::GradMode::is_enabled();
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.is_sparse() || sum.is_sparse_csr()) {
    // Dense + sparse has a kernel, sparse + dense has none; of two sparse ones the later leads.
    sum = in_place && writable(gradient) ? gradient.add_(sum) : gradient.add(sum);
  } else if (in_place && writable(sum) && !at::isTensorSubclassLike(gradient)) {
    sum.add_(gradient);
  } else {
    sum = sum.add(gradient);
  }
}

}  // namespace weft::autograd
