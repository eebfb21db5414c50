// SPDX-License-Identifier: BSL-1.0
// What libtorch's autograd offers beside gradients, across workers: it does as there, or says why
// it cannot.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace autograd_tests {

TEST_CASE("autograd features: a tensor written in place after it was sent fails its pass alone") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor h = a.exp();  // whose backward needs it
      const at::Tensor y = co_await me.peer(1).call<&twice>(h);
      CHECK(same(y.detach(), (a.exp() * 2).detach()));
      h.mul_(2);
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CAPTURE(e.message());
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(e.detail().peer == "worker0");
      CHECK(says(e, "modified by an inplace operation"));
      CHECK((co_await ctx.gradients()).empty());
      const at::Tensor again = co_await me.peer(1).call<&twice>(a);
      co_await ctx.backward(again.sum());
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
    });
    CHECK(co_await all_forgotten(all));
  });
}

at::Tensor nan_in_backward(const at::Tensor& x) { return x.sqrt() * 0; }

TEST_CASE("autograd features: anomaly mode names the node and the worker where the NaN came up") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = at::zeros({2}).set_requires_grad(true);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&nan_in_backward>(a);
      weft::error e;
      {
        const torch::autograd::DetectAnomalyGuard guard;
        e = co_await thrown_by(ctx.backward(y.sum(), {.retention = graph_retention::retain}));
      }
      CAPTURE(e.message());
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(e.detail().peer == "worker1");
      CHECK(says(e, "SqrtBackward0"));
      CHECK(says(e, "returned NaN"));
      co_await ctx.backward(y.sum());  // without it nobody minds
      CHECK(at::isnan((co_await ctx.gradients()).find(a)).all().item<bool>());
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// Its backward asks for a callback at the end of libtorch's own pass.
struct asks_for_callback : torch::autograd::Function<asks_for_callback> {
  static inline std::atomic<int> called{0};
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    torch::autograd::Engine::get_default_engine().queue_callback([] { ++called; });
    return {g[0] * 2};
  }
};
at::Tensor with_callback(const at::Tensor& x) { return asks_for_callback::apply(x); }

TEST_CASE("autograd features: a node that queues a callback of libtorch's engine is refused") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    asks_for_callback::called = 0;
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&with_callback>(a);
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CAPTURE(e.message());
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(e.detail().peer == "worker1");
      CHECK(says(e, "callback"));
      CHECK((co_await ctx.gradients()).empty());
    });
    CHECK(asks_for_callback::called == 0);
    CHECK(co_await all_forgotten(all));
  });
}

class counts_accumulations : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit counts_accumulations(std::atomic<int>& calls) : calls_(&calls) {}
  void operator()(const torch::autograd::Variable&) override { ++*calls_; }

 private:
  std::atomic<int>* calls_;
};

TEST_CASE("autograd features: nothing is accumulated, so no hook behind that runs") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    std::atomic<int> calls{0};
    const at::Tensor a = leaf(1, {3});
    torch::autograd::impl::set_post_acc_grad_hooks(a,
                                                   std::make_unique<counts_accumulations>(calls));
    a.sum().backward();
    CHECK(calls == 1);  // libtorch's own pass does
    a.mutable_grad() = at::Tensor();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&twice>(a);
      co_await ctx.backward(y.sum());
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
    });
    CHECK(calls == 1);
    CHECK_FALSE(a.grad().defined());
    CHECK(co_await all_forgotten(all));
  });
}

}  // namespace autograd_tests
