// SPDX-License-Identifier: BSL-1.0
// What runs where a module is.
#pragma once

#include <weft/linkage.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::optim {

/// Parameters and buffers by name. Copies, such as torch::save takes one by one.
using module_state = std::map<std::string, at::Tensor>;

namespace detail {

/// A torch::nn::Module, or what points to one (torch::nn::Linear, std::shared_ptr).
template <class Module>
auto& module_in(Module& m) {
  if constexpr (requires { m.named_parameters(); }) {
    return m;
  } else {
    return *m;
  }
}

template <class Module>
WEFT_PROCESS_WIDE asio::awaitable<std::vector<rref<at::Tensor>>> parameters_of(worker& me,
                                                                               Module& m) {
  std::vector<rref<at::Tensor>> out;
  std::vector<at::Tensor> seen;  // one that is shared by two layers is one parameter
  for (const at::Tensor& p : module_in(m).parameters()) {
    const auto same = [&p](const at::Tensor& other) { return other.is_same(p); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(p);
    out.push_back(me.share(p));
  }
  co_return out;
}

/// Live tensors.
template <class Module>
module_state tensors_of(Module& m) {
  module_state out;
  for (const auto& p : module_in(m).named_parameters()) out.emplace(p.key(), p.value());
  for (const auto& b : module_in(m).named_buffers()) out.emplace(b.key(), b.value());
  return out;
}

template <class Module>
WEFT_PROCESS_WIDE module_state state_of(Module& m) {
  const at::AutoGradMode off(false);
  module_state out = tensors_of(m);
  for (auto& [name, tensor] : out) tensor = tensor.detach().clone();
  return out;
}

/// All or nothing, but for what libtorch throws on the way.
template <class Module>
WEFT_PROCESS_WIDE void load_state(Module& m, const module_state& given) {
  const at::AutoGradMode off(false);
  module_state mine = tensors_of(m);
  module_state checked;
  std::string wrong;
  const auto refuse = [&wrong](const char* why, const std::string& name) {
    wrong += (wrong.empty() ? "" : "; ") + std::string(why) + " '" + name + "'";
  };
  for (const auto& [name, tensor] : mine) {
    const auto found = given.find(name);
    if (found == given.end() || !found->second.defined()) {
      refuse("the state has no", name);
    } else if (found->second.sizes() != tensor.sizes() ||
               found->second.layout() != tensor.layout() ||
               found->second.is_complex() != tensor.is_complex()) {
      refuse("the module has another shape or kind of", name);
    } else {
      checked.emplace(name, found->second.to(tensor.device(), tensor.scalar_type()));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!mine.contains(name)) refuse("the module has no", name);
  }
  if (!wrong.empty()) throw std::invalid_argument("the state does not fit the module: " + wrong);
  for (auto& [name, tensor] : mine) tensor.copy_(checked.at(name));
}

}  // namespace detail

}  // namespace weft::optim
