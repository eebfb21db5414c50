// SPDX-License-Identifier: BSL-1.0
// Gradients across processes: worker 0 holds x, worker 1 a layer with a weight, and the loss goes
// backward through both. Prints the gradient of x, which is the weight's column of sums, and leaves
// x.grad alone:
//
//   gradient of x: 3 3
//   x.grad is untouched
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <iostream>

class layer {
 public:
  explicit layer(double value) : weight_(at::full({2, 1}, value).set_requires_grad(true)) {}
  at::Tensor forward(at::Tensor x) { return x.matmul(weight_); }

 private:
  at::Tensor weight_;
};

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::rref<layer> there = me.peer(1).make<layer>(3.0);
  at::Tensor x = at::ones({1, 2}).set_requires_grad(true);

  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        at::Tensor y = co_await there.call<&layer::forward>(x);
        co_await ctx.backward(y.sum());
        auto gradients = co_await ctx.gradients();
        at::Tensor g = gradients.find(x)[0];
        std::cout << "gradient of x: " << g[0].item<double>() << ' ' << g[1].item<double>() << '\n';
      });
  std::cout << (x.grad().defined() ? "x.grad was set\n" : "x.grad is untouched\n");
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
