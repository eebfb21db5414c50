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
      key_path path;
      const std::string& name = item.key();
      for (std::size_t begin = 0;;) {
        const std::size_t end = name.find('.', begin);
        path.push_back(name.substr(begin, end - begin));
        if (end == std::string::npos) break;
        begin = end + 1;
      }
      out.emplace_back(std::move(path), item.value());
    }
  };
  add(module.named_parameters(true));
  add(module.named_buffers(true));
  return out;
}

/// The module's tensors, and those of `td` for them.
inline std::vector<std::pair<at::Tensor, at::Tensor>> matched(const tensordict& td,
                                                              const torch::nn::Module& module) {
  std::vector<std::pair<at::Tensor, at::Tensor>> out;
  const auto own = tensors_of(module);
  for (const auto& [key, value] : td.leaves()) {
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const auto& o) { return o.first == key; });
    if (found == own.end()) {
      std::string name;
      for (const std::string& part : key) name += (name.empty() ? "" : ".") + part;
      throw tensordict_error(tensordict_errc::no_key,
                             "the module has no parameter or buffer '" + name + "'");
    }
    const at::Tensor& into = found->second;
    if (into.sizes() != value.sizes()) {
      throw tensordict_error(tensordict_errc::shape,
                             "entry " + words(key) + " has the sizes " + words(value.sizes()) +
                                 ", and the module's " + words(into.sizes()));
    }
    const bool twice =
        std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.first.is_same(into); });
    if (!twice) out.emplace_back(into, value);
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
  auto all = detail::matched(td, module);
  for (const auto& [own, value] : all) {
    if (own.scalar_type() == value.scalar_type() && own.device() == value.device() &&
        own.layout() == value.layout()) {
      continue;
    }
    throw tensordict_error(tensordict_errc::kind,
                           "a tensor of " + std::string(c10::toString(value.scalar_type())) +
                               " on " + value.device().str() + " for a parameter or buffer of " +
                               c10::toString(own.scalar_type()) + " on " + own.device().str());
  }
  module_swap out;
  out.before_.reserve(all.size());
  for (auto& [own, value] : all) {
    out.before_.emplace_back(own, own.detach());
    own.set_data(value.detach());
  }
  return out;
}

inline void load_into(torch::nn::Module& module, const tensordict& td) {
  const auto all = detail::matched(td, module);
  const at::NoGradGuard no_grad;
  for (const auto& [own, value] : all) own.copy_(value);
}

}  // namespace weft
