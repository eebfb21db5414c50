// SPDX-License-Identifier: BSL-1.0
// A layer to train, and starting values that every process agrees on.
#pragma once

#include <weft/wire/tensor.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <rref/workers.hpp>

namespace optim_tests {

using namespace weft::testing;
using weft::worker;
using weft::autograd::context;

/// 3x3 numbers by a seed: a leaf that requires grad.
inline at::Tensor start_of(int seed) {
  const at::Tensor numbers =
      at::arange(9, at::kDouble).add(seed).mul(7).remainder(11).sub(5).div(8);
  return numbers.to(at::kFloat).reshape({3, 3}).set_requires_grad(true);
}
inline at::Tensor input() { return at::arange(6, at::kFloat).reshape({2, 3}).sub(2).div(4); }
inline at::Tensor loss_of(const at::Tensor& out, const at::Tensor& own) {
  return at::matmul(out, own).sin().sum();
}

class layer {
 public:
  explicit layer(int seed) : weight_(start_of(seed)) {}
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight_); }
  at::Tensor weight() { return weight_; }
  void freeze() { weight_.set_requires_grad(false); }
  void set_grad(const at::Tensor& g) { weight_.mutable_grad() = g.clone(); }
  at::Tensor grad() { return weight_.grad(); }
  std::int64_t version() { return static_cast<std::int64_t>(weight_._version()); }
  /// Other values in other memory, as torch::load and Module::to leave behind.
  void replace(double by) { weight_.set_data(weight_.detach().add(by)); }
  void set_weight(const at::Tensor& t) { weight_.set_data(t.detach().clone()); }
  void replace_by_double() { weight_.set_data(weight_.detach().to(at::kDouble)); }
  void grow() { weight_.set_data(at::zeros({3, 4})); }
  void transpose_memory() { weight_.set_data(weight_.detach().t().contiguous().t()); }
  /// Changes the weight itself, as an optimizer without aliases would.
  void change_in_place() {
    const at::NoGradGuard off;
    weight_.add_(1);
  }

 private:
  at::Tensor weight_;
};

}  // namespace optim_tests
