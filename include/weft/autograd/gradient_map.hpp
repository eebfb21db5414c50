// SPDX-License-Identifier: BSL-1.0
#pragma once

// Gradients by variable, kept outside the variables: `.grad` is never touched.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd {

/// In the order in which variables were first met. Not thread-safe.
class gradient_map {
 public:
  struct entry {
    at::Tensor variable;
    at::Tensor gradient;
  };

  /// Adds `gradient` to the variable's, as libtorch does for `.grad`: the first is taken over if
  /// nobody else holds it and its strides suit, else copied; later ones are added in place where
  /// that is possible. `expected_references`: how many the caller itself holds.
  void accumulate(const at::Tensor& variable, const at::Tensor& gradient,
                  std::size_t expected_references = 1);

  /// Adds all of `pass`, which is left empty.
  void merge(gradient_map&& pass);

  /// Undefined if there is none. Valid until the map changes; later passes may add to it in place.
  at::Tensor find(const at::Tensor& variable) const {
    const auto found = index_.find(variable.unsafeGetTensorImpl());
    return found == index_.end() ? at::Tensor() : entries_[found->second].gradient;
  }
  std::span<const entry> entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() {
    entries_.clear();
    index_.clear();
  }

 private:
  entry& at(const at::Tensor& variable) {
    const auto [found, fresh] = index_.try_emplace(variable.unsafeGetTensorImpl(), entries_.size());
    if (fresh) entries_.push_back({variable, {}});
    return entries_[found->second];
  }

  std::vector<entry> entries_;
  // For look-up only; the entry keeps the tensor, and so its address, alive.
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_;
};

inline void gradient_map::accumulate(const at::Tensor& variable, const at::Tensor& gradient,
                                     std::size_t expected_references) {
  if (!gradient.defined()) return;
  at::Tensor& sum = at(variable).gradient;
  const at::AutoGradMode off(false);
  torch::autograd::AccumulateGrad::accumulateGrad(
      variable, sum, gradient, expected_references,
      [&sum](at::Tensor&& updated) { sum = std::move(updated); });
}

inline void gradient_map::merge(gradient_map&& pass) {
  for (entry& e : pass.entries_) {
    if (!e.gradient.defined()) continue;
    at::Tensor& sum = at(e.variable).gradient;
    if (sum.defined()) {
      accumulate(e.variable, e.gradient);
    } else {
      sum = std::move(e.gradient);  // the pass owned it
    }
  }
  pass.clear();
}

}  // namespace weft::autograd
