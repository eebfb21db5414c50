// SPDX-License-Identifier: BSL-1.0
// What backward can do across two processes. Each part computes the same in one process, too, and
// fails if any number differs. Prints:
//
//   FAST: t1 1 2 3, t2 1 2 3, t4 5 7 9
//   SMART, with a result that nobody uses: a 1 1 1, b 1 1 1
//   inputs: x 6 24 54, and no gradient of the weight
//   second derivative: x 12 24 36, and of the weight 3 12 27
//   a loss that stays at worker 1: x 6 24 54, and of the weight 1 8 27
#include <weft/run.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

using weft::autograd::context;
using weft::autograd::with_context;

// What worker 1 does.
at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return a + b; }
at::Tensor mul(const at::Tensor& a, const at::Tensor& b) { return a * b; }

class cubic {
 public:
  at::Tensor forward(const at::Tensor& x) { return weight_ * x.pow(3); }
  at::Tensor loss(const at::Tensor& x) { return forward(x).sum(); }
  /// The gradient of the weight, which is here, in the caller's context.
  asio::awaitable<at::Tensor> gradient(weft::worker& me) {
    const auto gradients = co_await weft::autograd::this_context(me).gradients();
    co_return gradients.find(weight_);
  }
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_ = at::full({3}, 2.0).set_requires_grad(true);
};

at::Tensor leaf(double first) {
  return (at::arange(3, at::kFloat) + first).set_requires_grad(true);
}

/// "1 2 3", once it is sure that one process has the same.
std::string same(const at::Tensor& got, const at::Tensor& one_process) {
  if (!got.defined() || !at::equal(got, one_process)) throw std::runtime_error("it differs");
  std::string text;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    text += (i ? " " : "") + std::to_string(got[i].item<std::int64_t>());
  }
  return text;
}

/// A graph whose results are all used: no worker needs to ask first.
asio::awaitable<void> fast(weft::worker& me) {
  const at::Tensor t1 = leaf(1), t2 = leaf(4), t4 = leaf(1);
  const auto wanted = torch::autograd::grad({((t1 + t2) * t4).sum()}, {t1, t2, t4});
  co_await with_context(me,
                        [&](context ctx) -> asio::awaitable<void> {
                          const at::Tensor t3 = co_await me.peer(1).call<&add>(t1, t2);
                          co_await ctx.backward((t3 * t4).sum());
                          const auto g = co_await ctx.gradients();
                          std::cout << "FAST: t1 " << same(g.find(t1), wanted[0]) << ", t2 "
                                    << same(g.find(t2), wanted[1]) << ", t4 "
                                    << same(g.find(t4), wanted[2]) << '\n';
                        },
                        {.mode = weft::autograd::mode::fast});
}

/// Nobody uses `e`. In FAST mode, the pass would wait for its gradient until the deadline.
asio::awaitable<void> smart(weft::worker& me) {
  const at::Tensor a = leaf(1), b = leaf(4), c = leaf(7);
  const auto wanted = torch::autograd::grad({(a + b).sum()}, {a, b});
  co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor d = co_await me.peer(1).call<&add>(a, b);
    const at::Tensor e = co_await me.peer(1).call<&mul>(b, c);
    co_await ctx.backward(d.sum());
    const auto g = co_await ctx.gradients();
    if (g.find(c).defined()) throw std::runtime_error("c has no gradient in one process");
    std::cout << "SMART, with a result that nobody uses: a " << same(g.find(a), wanted[0]) << ", b "
              << same(g.find(b), wanted[1]) << '\n';
  });
}

/// Only the gradient of x is computed.
asio::awaitable<void> inputs(weft::worker& me, weft::rref<cubic> model) {
  const at::Tensor x = leaf(1);
  cubic here;
  const auto wanted = torch::autograd::grad({here.loss(x)}, {x});
  co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor y = co_await model.call<&cubic::forward>(x);
    co_await ctx.backward(y.sum(), {.inputs = {x}});
    const auto g = co_await ctx.gradients();
    const at::Tensor of_weight = co_await model.call<&cubic::gradient>();
    std::cout << "inputs: x " << same(g.find(x), wanted[0]) << ", and "
              << (of_weight.defined() ? "a" : "no") << " gradient of the weight\n";
  });
}

/// The first gradient has a history, through worker 1 and back.
asio::awaitable<void> second_derivative(weft::worker& me, weft::rref<cubic> model) {
  const at::Tensor x = leaf(1);
  cubic here;
  const at::Tensor first = torch::autograd::grad({here.loss(x)}, {x}, {}, {}, true)[0];
  const auto wanted = torch::autograd::grad({first.sum()}, {x, here.weight()});
  co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor y = co_await model.call<&cubic::forward>(x);
    const auto g =
        co_await ctx.grad(y.sum(), {x}, {.graph = weft::autograd::gradient_graph::create});
    co_await ctx.backward(g[0].sum());
    const at::Tensor of_weight = co_await model.call<&cubic::gradient>();
    std::cout << "second derivative: x " << same((co_await ctx.gradients()).find(x), wanted[0])
              << ", and of the weight " << same(of_weight, wanted[1]) << '\n';
  });
}

asio::awaitable<void> far(context ctx, weft::rref<at::Tensor> loss) {
  co_await weft::autograd::backward(ctx, loss);
}

/// A coroutine of its own runs backward from a loss that worker 1 keeps.
asio::awaitable<void> from_reference(weft::worker& me, weft::rref<cubic> model) {
  const at::Tensor x = leaf(1);
  cubic here;
  const auto wanted = torch::autograd::grad({here.loss(x)}, {x, here.weight()});
  co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const weft::rref<at::Tensor> loss = model.remote<&cubic::loss>(x);
    co_await me.spawn(far(ctx, loss));
    const at::Tensor of_weight = co_await model.call<&cubic::gradient>();
    std::cout << "a loss that stays at worker 1: x "
              << same((co_await ctx.gradients()).find(x), wanted[0]) << ", and of the weight "
              << same(of_weight, wanted[1]) << '\n';
  });
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const weft::rref<cubic> model = me.peer(1).make<cubic>();
  co_await fast(me);
  co_await smart(me);
  co_await inputs(me, model);
  co_await second_derivative(me, model);
  co_await from_reference(me, model);
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
