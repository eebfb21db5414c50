// SPDX-License-Identifier: BSL-1.0
#include "local.hpp"

#include "../samples.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace bench::local {
namespace {

struct linear {
  at::Tensor weight = (at::randn({width, width}) * 0.125).set_requires_grad(true);
  at::Tensor bias = at::zeros({width}).set_requires_grad(true);

  at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

figures train(bool backward_alone) {
  at::set_num_threads(1);
  at::manual_seed(1);
  const std::array<linear, 2> layers;
  torch::optim::SGD descent(
      std::vector<at::Tensor>{layers[0].weight, layers[0].bias, layers[1].weight, layers[1].bias},
      torch::optim::SGDOptions(rate));
  const auto x = at::randn({batch, width});
  const auto y = at::randn({batch, width});
  double last = 0;
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    descent.zero_grad();
    const auto loss = at::mse_loss(layers[1].forward(layers[0].forward(x)), y);
    if (backward_alone) times.begin();
    loss.backward();
    if (backward_alone) times.end();
    descent.step();
    last = loss.item<double>();
    if (!backward_alone) times.end();
  }
  if (!std::isfinite(last)) throw std::runtime_error("the model diverged");
  return times.latency();
}

}  // namespace

figures step() { return train(false); }
figures backward() { return train(true); }

}  // namespace bench::local
