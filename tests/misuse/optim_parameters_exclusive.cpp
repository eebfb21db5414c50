// expect: weft: the functions of weft::optim take no weft::exclusive module.*p\.make<net>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/optim/module.hpp>
#include <weft/rref/exclusive.hpp>

#include <torch/nn/module.h>

struct net : torch::nn::Module {};

auto use(weft::rref<weft::exclusive<net>> r) { return weft::optim::parameters(r); }
