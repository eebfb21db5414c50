// SPDX-License-Identifier: BSL-1.0
// What a shared library has for the program that is linked with it, or loads it.
#pragma once

#include <weft/optim/distributed.hpp>
#include <weft/optim/lbfgs.hpp>
#include <weft/optim/module.hpp>
#include <weft/weft.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#define PLUGIN_SHOWS [[gnu::visibility("default")]]

namespace plugin {

PLUGIN_SHOWS at::Tensor triple(const at::Tensor& x);
/// Whether this code sees the deadline of the call that it serves, and how far off: seconds.
PLUGIN_SHOWS asio::awaitable<double> time_left(weft::worker& me);
/// Calls of the library's own functions, with tensors and objects, at the next worker.
PLUGIN_SHOWS asio::awaitable<at::Tensor> calls(weft::worker& me, at::Tensor x);

/// Functions of weft that run at other workers: compiled into both.
inline auto parameters_at(const weft::rref<torch::nn::LinearImpl>& layer) {
  weft::optim::lbfgs::expose();
  weft::optim::distributed<torch::optim::SGD>::expose();
  return weft::optim::parameters(layer);
}
/// So is this.
struct counter {
  int add(int by) { return value += by; }
  int value = 0;
};

}  // namespace plugin

/// Begins `calls`, for a program that loads the library.
extern "C" PLUGIN_SHOWS void plugin_main(weft::worker& me, asio::awaitable<void>& begun);
