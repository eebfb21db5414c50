// expect: weft: this optimizer is only declared; include its header
// SPDX-License-Identifier: BSL-1.0
#include <weft/optim/distributed.hpp>

weft::optim::distributed<torch::optim::Adam> refused;
