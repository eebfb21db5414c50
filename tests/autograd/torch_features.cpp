// SPDX-License-Identifier: BSL-1.0
// What libtorch's autograd offers beside gradients, across workers: it does as there, or says why
// it cannot.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <atomic>
#include <stdexcept>

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
      CHECK(says(e, "the result of autograd_tests::nan_in_backward to worker 'worker0'"));
      co_await ctx.backward(y.sum());  // without it nobody minds
      CHECK(at::isnan((co_await ctx.gradients()).find(a)).all().item<bool>());
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// Its backward asks for a callback at the end of libtorch's own pass.
struct asks_for_callback : torch::autograd::Function<asks_for_callback> {
  static inline std::atomic<int> called{0};
  static inline std::atomic<int> too_early{0};  // while a node of its worker was still to run
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            std::uint32_t here) {
    ctx->saved_data["worker"] = static_cast<std::int64_t>(here);
    ++to_run()[here];
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list g) {
    const auto here = static_cast<std::uint32_t>(ctx->saved_data["worker"].toInt());
    --to_run()[here];
    torch::autograd::Engine::get_default_engine().queue_callback([here] {
      ++called;
      if (to_run()[here] != 0) ++too_early;
    });
    return {g[0] * 2, at::Tensor()};
  }
  static std::array<std::atomic<int>, 2>& to_run() {
    static std::array<std::atomic<int>, 2> counts;
    return counts;
  }
};
struct asks_for_bad_callback : torch::autograd::Function<asks_for_bad_callback> {
  static inline std::atomic<bool> of_std{true};
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    torch::autograd::Engine::get_default_engine().queue_callback([] {
      if (of_std) throw std::runtime_error("no callback");
      throw 7;
    });
    return {g[0] * 2};
  }
};
at::Tensor with_callback(const at::Tensor& x, std::uint32_t here) {
  return asks_for_callback::apply(x, here);
}

/// The graph of each worker's part is over when its callbacks run, and the pass is not.
TEST_CASE("autograd features: callbacks of libtorch's engine run when a worker's part is over") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    asks_for_callback::called = 0;
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      // Worker 1 has two nodes that ask, and waits for worker 0 between them.
      const at::Tensor x = co_await me.peer(1).call<&with_callback>(a, 1u);
      const at::Tensor y = co_await me.peer(1).call<&with_callback>(with_callback(x, 0), 1u);
      co_await ctx.backward(y.sum());
      CHECK(asks_for_callback::called == 3);
      CHECK(asks_for_callback::too_early == 0);
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 8.0)));
    });
    CHECK(co_await all_forgotten(all));
  });
}

at::Tensor with_bad_callback(const at::Tensor& x) { return asks_for_bad_callback::apply(x); }

TEST_CASE("autograd features: a callback that throws fails the pass") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&with_bad_callback>(a);
      for (const bool of_std : {true, false}) {
        asks_for_bad_callback::of_std = of_std;
        const auto e =
            co_await thrown_by(ctx.backward(y.sum(), {.retention = graph_retention::retain}));
        CAPTURE(e.message());
        CHECK(e == errc::autograd_pass_aborted);
        CHECK(e.detail().peer == "worker1");
        CHECK(says(e, "a callback of Engine::queue_callback"));
        CHECK(says(e, of_std ? "no callback" : "unknown type"));
        CHECK((co_await ctx.gradients()).empty());
      }
    });
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
