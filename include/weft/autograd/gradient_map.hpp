// SPDX-License-Identifier: BSL-1.0
#pragma once

// Gradients by variable, kept outside the variables: `.grad` is never touched.

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd {

/// Whether the tensor's memory is reached through this tensor only: no other tensor, here or in
/// another context or worker of this process, is a view of it. (One may own a tensor alone and yet
/// share its storage: detach(), views, messages inside one process.)
inline bool owns_its_memory(const at::Tensor& t) {
  if (t.layout() == at::kSparse) {
    const auto& parts = static_cast<const at::SparseTensorImpl&>(*t.unsafeGetTensorImpl());
    const at::Tensor indices = parts.indices(), values = parts.values();
    constexpr std::size_t mine = 2;  // the sparse tensor's own, and the one right here
    return indices.use_count() <= mine && values.use_count() <= mine &&
           indices.storage().use_count() == 1 && values.storage().use_count() == 1;
  }
  if (t.layout() != at::kStrided || !t.has_storage()) return false;
  // A view keeps what it is a view of, which nobody else may have: what sums and transposes return.
  // (A part of a larger tensor would keep all of its memory.)
  std::size_t mine = 1;
  if (const auto* view = torch::autograd::impl::get_view_autograd_meta(t);
      view && view->has_bw_view()) {
    const at::Tensor& base = view->get_backward_view().base_;
    if (base.use_count() == 1 && base.has_storage() && base.is_alias_of(t) &&
        t.nbytes() == t.storage().nbytes() && !t.is_conj() && !t.is_neg()) {
      mine = 2;
    }
  }
  return t.storage().use_count() == mine;
}

/// In the order in which variables were first met. Every gradient has memory of its own. Not
/// thread-safe.
class gradient_map {
 public:
  struct entry {
    at::Tensor variable;
    at::Tensor gradient;
  };

  /// Adds `gradient` to the variable's, as libtorch does for `.grad`: the first is taken over if
  /// nobody but the caller holds it, it owns its memory and its strides suit, else copied; later
  /// ones are added in place where that is possible.
  void accumulate(const at::Tensor& variable, const at::Tensor& gradient);

  /// Some of `pass` are of variables that have a gradient here: to merge it computes.
  bool overlaps(const gradient_map& pass) const {
    return std::any_of(pass.entries_.begin(), pass.entries_.end(), [this](const entry& e) {
      return index_.contains(e.variable.unsafeGetTensorImpl());
    });
  }
  /// Adds all of `pass`, which is left empty. If it throws, some were added, and `pass` has the
  /// others.
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
    if (fresh) {
      try {
        entries_.push_back({variable, {}});
      } catch (...) {
        index_.erase(found);
        throw;
      }
    }
    return entries_[found->second];
  }

  std::vector<entry> entries_;
  // For look-up only; the entry keeps the tensor, and so its address, alive.
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_;
};

inline void gradient_map::accumulate(const at::Tensor& variable, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  at::Tensor& sum = at(variable).gradient;
  const at::AutoGradMode off(false);
  const std::size_t references_of_an_owner = owns_its_memory(gradient) ? 1 : 0;
  torch::autograd::AccumulateGrad::accumulateGrad(
      variable, sum, gradient, references_of_an_owner,
      [&sum](at::Tensor&& updated) { sum = std::move(updated); });
}

inline void gradient_map::merge(gradient_map&& pass) {
  for (entry& e : pass.entries_) {
    if (!e.gradient.defined()) continue;
    at::Tensor& sum = at(e.variable).gradient;
    if (sum.defined()) {
      accumulate(e.variable, e.gradient);
      e.gradient = at::Tensor();
    } else {
      sum = std::move(e.gradient);  // the pass owned it
    }
  }
  pass.clear();
}

}  // namespace weft::autograd
