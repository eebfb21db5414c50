// SPDX-License-Identifier: BSL-1.0
// Parameter groups of distributed optimizers.
//
//   using group = weft::optim::parameter_group<SGD>;
//   auto sgd = co_await weft::optim::distributed<SGD>::create(
//       me, {group{weights, SGDOptions(0.1).momentum(0.9)}, group{biases, SGDOptions(0.2)}});
#pragma once

#include <weft/optim/options.hpp>
#include <weft/rref/rref.hpp>

#include <ATen/core/Tensor.h>

#include <vector>

namespace weft::optim {

/// Parameters with the same options.
template <class Optimizer>
struct parameter_group {
  std::vector<rref<at::Tensor>> parameters;
  typename optimizer_traits<Optimizer>::options options;
};

}  // namespace weft::optim
