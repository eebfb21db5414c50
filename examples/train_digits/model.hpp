// SPDX-License-Identifier: BSL-1.0
#pragma once
// The model in two halves: the server owns an Encoder, each trainer a Head.
//
//   images [N,1,8,8] -> Encoder: two convolutions, a dense layer -> [N,hidden]
//                    -> Head -> logits [N,10]

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstdint>

namespace digits {

inline constexpr std::int64_t hidden_size = 64;

// Draws every parameter from the seed, in +-1/sqrt(inputs of the layer), so that a run can be
// repeated and two processes can build the same module.
inline void initialise(torch::nn::Module& module, std::int64_t seed) {
  const at::NoGradGuard no_grad;
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  for (const auto& layer : module.children()) {
    double bound = 0;
    for (auto& parameter : layer->parameters()) {  // the weight comes first, then the bias
      if (parameter.dim() > 1)
        bound = 1 / std::sqrt(static_cast<double>(parameter.numel() / parameter.size(0)));
      parameter.uniform_(-bound, bound, random);
    }
  }
}

struct Encoder : torch::nn::Module {
  Encoder(std::int64_t hidden, std::int64_t seed)
      : conv1(register_module("conv1", torch::nn::Conv2d(conv(1, 16)))),
        conv2(register_module("conv2", torch::nn::Conv2d(conv(16, 32)))),
        dense(register_module("dense", torch::nn::Linear(32 * 4 * 4, hidden))) {
    initialise(*this, seed);
  }

  at::Tensor forward(at::Tensor x) {
    x = conv1(x).relu();
    x = at::max_pool2d(conv2(x).relu(), 2);
    return dense(x.flatten(1)).relu();
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear dense;

 private:
  static torch::nn::Conv2dOptions conv(std::int64_t in, std::int64_t out) {
    return torch::nn::Conv2dOptions(in, out, 3).padding(1);
  }
};

struct Head : torch::nn::Module {
  Head(std::int64_t hidden, std::int64_t seed)
      : dense1(register_module("dense1", torch::nn::Linear(hidden, hidden))),
        dense2(register_module("dense2", torch::nn::Linear(hidden, classes))) {
    initialise(*this, seed);
  }

  at::Tensor forward(at::Tensor x) { return dense2(dense1(x).relu()); }  // logits [N,10]

  static constexpr std::int64_t classes = 10;
  torch::nn::Linear dense1, dense2;
};

// Mean cross entropy of logits [N,10] against labels [N] int64: a scalar to go backward from.
inline at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels);
}

// How many rows of logits have their largest value at the label.
inline std::int64_t correct(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.argmax(1).eq(labels).sum().item<std::int64_t>();
}

}  // namespace digits
