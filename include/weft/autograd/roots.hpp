// SPDX-License-Identifier: BSL-1.0
// Where a pass begins, and the inputs whose gradients it is asked for, as edges of the graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::autograd {

/// A pass begins here: a gradient for one input of one node.
struct root {
  torch::autograd::Edge edge;
  at::Tensor gradient;
};

/// The roots of `tensors`. `gradients` is empty, or has one per tensor. If a gradient is undefined,
/// or none is given, it is 1; then the tensor must be real and have one element. Throws
/// `std::invalid_argument` with a sentence.
std::vector<root> roots_of(std::span<const at::Tensor> tensors,
                           std::span<const at::Tensor> gradients = {});

/// The edges of `inputs`, at which their gradients arrive. Throws `std::invalid_argument` with a
/// sentence if one requires no grad, or is no leaf although it must be.
std::vector<torch::autograd::Edge> inputs_of(std::span<const at::Tensor> inputs, bool any);

inline std::vector<torch::autograd::Edge> inputs_of(std::span<const at::Tensor> inputs, bool any) {
  const auto refuse = [](std::size_t i, const char* why) {
    throw std::invalid_argument("weft: backward: input " + std::to_string(i) + " " + why);
  };
  if (inputs.empty()) throw std::invalid_argument("weft: backward: no input was given");
  std::vector<torch::autograd::Edge> edges;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) refuse(i, "is undefined");
    if (!inputs[i].requires_grad()) refuse(i, "does not require grad");
    if (!any && !inputs[i].is_leaf()) refuse(i, "is no leaf: use grad for computed tensors");
    edges.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
  }
  return edges;
}

inline std::vector<root> roots_of(std::span<const at::Tensor> tensors,
                                  std::span<const at::Tensor> gradients) {
  const auto refuse = [](std::size_t i, const std::string& why) {
    throw std::invalid_argument("weft: backward: root " + std::to_string(i) + " " + why);
  };
  if (tensors.empty()) throw std::invalid_argument("weft: backward: no root was given");
  if (!gradients.empty() && gradients.size() != tensors.size()) {
    throw std::invalid_argument("weft: backward: " + std::to_string(gradients.size()) +
                                " gradients for " + std::to_string(tensors.size()) + " roots");
  }
  std::vector<root> roots;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    if (!t.defined()) refuse(i, "is undefined");
    if (!t.requires_grad()) refuse(i, "does not require grad");
    at::Tensor gradient = gradients.empty() ? at::Tensor() : gradients[i];
    if (!gradient.defined()) {
      if (t.numel() != 1) refuse(i, "is not a scalar and has no gradient given");
      if (t.is_complex()) refuse(i, "is complex and has no gradient given");
      gradient = at::ones_like(t.detach());
    } else if (gradient.sizes() != t.sizes()) {
      refuse(i, "and its gradient differ in shape");
    } else if (gradient.scalar_type() != t.scalar_type()) {
      refuse(i, "and its gradient differ in dtype");
    }
    // The user's handle as it is: whoever would take its memory over sees that it is not alone.
    roots.push_back({torch::autograd::impl::gradient_edge(t), std::move(gradient)});
  }
  return roots;
}

}  // namespace weft::autograd
