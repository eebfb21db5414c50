// expect: weft: this optimizer's step calls a closure
// SPDX-License-Identifier: BSL-1.0
#include <weft/optim/distributed.hpp>

#include <torch/optim/lbfgs.h>

weft::optim::distributed<torch::optim::LBFGS> refused;
