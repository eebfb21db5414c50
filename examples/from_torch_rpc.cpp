// SPDX-License-Identifier: BSL-1.0
// What a first program of Python's torch.distributed.rpc does, in weft. The page
// guide/from-torch-rpc.md shows both side by side. Prints
//
//   add: 2 2
//   to_here: 1000 numbers
//   loss: 6
//   after a step: 5
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <vector>

using torch::optim::SGD, torch::optim::SGDOptions;

/// One overload of libtorch's own function, chosen by a cast.
constexpr auto add =
    static_cast<at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&)>(&at::add);

at::Tensor numbers(int n) { return at::arange(n); }

class layer {
 public:
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight_); }
  std::vector<weft::rref<at::Tensor>> parameters(weft::worker& me) { return {me.share(weight_)}; }

 private:
  at::Tensor weight_ = at::full({2, 1}, 3.0).set_requires_grad(true);
};

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;  // it serves until every main has returned
  weft::peer p = me.peer("worker1");

  at::Tensor sum = co_await p.call<add>(at::ones({2}), at::ones({2}), 1);
  std::cout << "add: " << sum[0].item<double>() << ' ' << sum[1].item<double>() << '\n';

  weft::rref<at::Tensor> there = p.remote<&numbers>(1000);  // usable at once
  std::cout << "to_here: " << (co_await there.to_here()).numel() << " numbers\n";

  weft::rref<layer> model = p.make<layer>();
  auto parameters = co_await model.call<&layer::parameters>();
  auto sgd = co_await weft::optim::distributed<SGD>::create(me, parameters, SGDOptions(0.5));
  const at::Tensor x = at::ones({1, 2});
  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        at::Tensor loss = (co_await model.call<&layer::forward>(x)).sum();
        std::cout << "loss: " << loss.item<double>() << '\n';
        co_await ctx.backward(loss);
        co_await sgd.step(ctx);
      });
  at::Tensor after = co_await model.call<&layer::forward>(x);
  std::cout << "after a step: " << after.item<double>() << '\n';
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
