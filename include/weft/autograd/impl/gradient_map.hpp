// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/gradient_map.hpp: what adds, as libtorch adds to `.grad`. Apart, because
// libtorch's own addition brings all of <ATen/ATen.h>, which no file with calls needs.
#pragma once

#include <weft/autograd/gradient_map.hpp>

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <utility>

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

inline void gradient_map::accumulate(const at::Tensor& variable, const at::Tensor& gradient,
                                     gradient_graph graph) {
  if (!gradient.defined()) return;
  at::Tensor& sum = at(variable).gradient;
  const at::AutoGradMode mode(graph == gradient_graph::create);
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
      // A step that rides on the end of a pass may still read it.
      const bool history = sum.requires_grad() || e.gradient.requires_grad() || sum.use_count() > 1;
      accumulate(e.variable, e.gradient, history ? gradient_graph::create : gradient_graph::none);
      e.gradient = at::Tensor();
    } else {
      sum = std::move(e.gradient);  // the pass owned it
    }
  }
  pass.clear();
}

}  // namespace weft::autograd
