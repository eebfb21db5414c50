// expect: weft: the functions of weft::optim take a weft::rref to the module
// SPDX-License-Identifier: BSL-1.0
#include <weft/optim/module.hpp>

#include <torch/nn/module.h>

struct net : torch::nn::Module {};

auto use() { return weft::optim::state_dict(net()); }
