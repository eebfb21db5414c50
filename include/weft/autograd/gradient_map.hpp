// SPDX-License-Identifier: BSL-1.0
// Gradients by variable, kept outside the variables: `.grad` is never touched.
#pragma once

#include <weft/autograd/types.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd {

/// Entries are in the order in which variables were first met. Each gradient has memory of its own.
/// Not thread-safe.
///
///   const weft::autograd::gradient_map all = co_await ctx.gradients();
///   for (const auto& [variable, gradient] : all.entries()) norm += gradient.norm();
class gradient_map {
 public:
  struct entry {
    at::Tensor variable;
    at::Tensor gradient;
  };

  /// Adds `gradient` to the variable's, as libtorch does for `.grad`. The first gradient is taken
  /// over if only the caller holds it, it owns its memory, and its strides fit; else it is copied.
  /// Later ones are added in place if that is possible.
  /// With a graph, the sum has a history, and nothing changes in place.
  /// Defined, as `merge`, in impl/gradient_map.hpp: only passes add.
  void accumulate(const at::Tensor& variable, const at::Tensor& gradient,
                  gradient_graph graph = gradient_graph::none);

  /// True if a variable of `pass` already has a gradient here, so that merging must compute.
  bool overlaps(const gradient_map& pass) const {
    return std::any_of(pass.entries_.begin(), pass.entries_.end(), [this](const entry& e) {
      return index_.contains(e.variable.unsafeGetTensorImpl());
    });
  }
  /// Adds all gradients of `pass`, and leaves it empty. Sums with gradients that have a history
  /// have one, too. If it throws, some were added, and `pass`
  /// has the others.
  void merge(gradient_map&& pass);

  /// The gradient of a variable; undefined if there is none. Valid until the map changes; later
  /// passes may add to it in place.
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
    const auto found = index_.find(variable.unsafeGetTensorImpl());
    if (found != index_.end()) return entries_[found->second];
    entries_.push_back({variable, {}});
    index_.emplace(variable.unsafeGetTensorImpl(), entries_.size() - 1);
    return entries_.back();
  }

  std::vector<entry> entries_;
  // For look-up only; the entry keeps the tensor, and so its address, alive.
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_;
};

}  // namespace weft::autograd
