// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/module.hpp.
#pragma once

#include <weft/tensordict/detail/words.hpp>
#include <weft/tensordict/module.hpp>

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace weft {
namespace detail {

/// By their keys; a tensor that has several names, several times.
inline std::vector<std::pair<key_path, at::Tensor>> tensors_of(const torch::nn::Module& module) {
  std::vector<std::pair<key_path, at::Tensor>> out;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      out.emplace_back(split_name(item.key()), item.value());
    }
  };
  add(module.named_parameters(true));
  add(module.named_buffers(true));
  return out;
}

struct matched_tensor {
  key_path key;
  at::Tensor own, value;
};
/// The module's tensors, and those of `td` for them.
inline std::vector<matched_tensor> matched(const tensordict& td, const torch::nn::Module& module,
                                           all_names all) {
  std::vector<matched_tensor> out;
  const auto own = tensors_of(module);
  for (const auto& [key, tensor] : own) {
    if (all == all_names::no || td.contains(key)) continue;
    throw tensordict_error(tensordict_errc::no_key,
                           "there is no entry for the module's '" + joined_name(key) + "'");
  }
  for (const auto& [key, value] : td.leaves()) {
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const auto& o) { return o.first == key; });
    if (found == own.end()) {
      throw tensordict_error(tensordict_errc::no_key,
                             "the module has no parameter or buffer '" + joined_name(key) + "'");
    }
    const at::Tensor& into = found->second;
    if (into.sizes() != value.sizes()) {
      throw tensordict_error(tensordict_errc::shape,
                             "entry " + words(key) + " has the sizes " + words(value.sizes()) +
                                 ", and the module's " + words(into.sizes()));
    }
    const bool twice =
        std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.own.is_same(into); });
    if (!twice) out.push_back({key, into, value});
  }
  return out;
}

}  // namespace detail

inline tensordict from_module(const torch::nn::Module& module) {
  tensordict out;
  for (const auto& [key, tensor] : detail::tensors_of(module)) out.set(key, tensor.detach());
  return out.lock_();
}

inline void module_swap::restore() noexcept {
  for (auto at = before_.rbegin(); at != before_.rend(); ++at) at->first.set_data(at->second);
  before_.clear();
}

inline module_swap to_module(const tensordict& td, torch::nn::Module& module) {
  const auto all = detail::matched(td, module, all_names::no);
  for (const auto& [key, own, value] : all) {
    if (own.scalar_type() == value.scalar_type() && own.device() == value.device() &&
        own.layout() == value.layout()) {
      continue;
    }
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + detail::words(key) + " is a tensor of " +
                               std::string(c10::toString(value.scalar_type())) + " on " +
                               value.device().str() + ", and the module's of " +
                               c10::toString(own.scalar_type()) + " on " + own.device().str());
  }
  module_swap out;
  out.before_.reserve(all.size());
  for (const auto& [key, own, value] : all) {
    out.before_.emplace_back(own, own.detach());
    own.set_data(value.detach());
  }
  return out;
}

inline void load_into(torch::nn::Module& module, const tensordict& td, all_names all) {
  const auto matched = detail::matched(td, module, all);
  const at::NoGradGuard no_grad;
  for (const auto& [key, own, value] : matched) own.copy_(value);
}

}  // namespace weft
