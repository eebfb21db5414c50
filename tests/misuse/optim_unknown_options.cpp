// expect: weft: weft does not know this optimizer's options
// SPDX-License-Identifier: BSL-1.0
#include <weft/optim/distributed.hpp>

struct own : torch::optim::Optimizer {
  using Optimizer::Optimizer;
  at::Tensor step(LossClosure = nullptr) override { return {}; }
};

weft::optim::distributed<own> refused;
