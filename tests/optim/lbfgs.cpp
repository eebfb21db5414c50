// SPDX-License-Identifier: BSL-1.0
// LBFGS, whose closure is a coroutine of the trainer: as in one process.
#include "layers.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/optim/lbfgs.hpp>

#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <vector>

namespace optim_tests {

using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using weft::errc;

at::Tensor target_of() { return at::arange(6, at::kFloat).reshape({2, 3}).sin(); }

asio::awaitable<void> check_lbfgs(worker& me, const LBFGSOptions& options) {
  at::Tensor w = start_of(1), v = start_of(2);
  LBFGS local(std::vector<at::Tensor>{w, v}, options);
  const auto local_step = [&] {
    return local.step([&] {
      local.zero_grad();
      const at::Tensor loss = (input().matmul(w).matmul(v) - target_of()).pow(2).mean();
      loss.backward();
      return loss;
    });
  };
  const auto first = me.peer(1).make<layer>(1), second = me.peer(1).make<layer>(2);
  const std::vector weights{first.remote<&layer::weight>(), second.remote<&layer::weight>()};
  const auto opt = co_await weft::optim::lbfgs::create(me, weights, options);
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    int computed = 0;
    const double loss = co_await opt.step([&](context ctx) -> asio::awaitable<at::Tensor> {
      ++computed;
      at::Tensor x = co_await first.call<&layer::forward>(input());
      x = co_await second.call<&layer::forward>(x);
      const at::Tensor l = (x - target_of()).pow(2).mean();
      co_await ctx.backward(l);
      co_return l;
    });
    CHECK(computed > 1);
    CHECK(loss == doctest::Approx(local_step().item<double>()));
    CHECK(at::allclose((co_await weights[0].to_here()), w, 1e-4, 1e-6));
    CHECK(at::allclose((co_await weights[1].to_here()), v, 1e-4, 1e-6));
  }
}

TEST_CASE("optim lbfgs: as in one process, with and without a line search") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(2, how, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
      co_await check_lbfgs(me, LBFGSOptions(0.5).max_iter(5));
      co_await check_lbfgs(me, LBFGSOptions(1).max_iter(4).line_search_fn("strong_wolfe"));
    });
  }
}

TEST_CASE("optim lbfgs: several owners are refused in a sentence; so are options") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto first = me.peer(1).make<layer>(1), second = me.peer(2).make<layer>(2);
    const std::vector weights{first.remote<&layer::weight>(), second.remote<&layer::weight>()};
    const auto made = [&](std::vector<weft::rref<at::Tensor>> of,
                          LBFGSOptions options) -> asio::awaitable<void> {
      static_cast<void>(co_await weft::optim::lbfgs::create(me, std::move(of), options));
    };
    const auto e = co_await thrown_by(made(weights, {}));
    CAPTURE(e.message());
    CHECK(e == errc::invalid_argument);
    CHECK(says(e, "LBFGS needs all parameters at one worker, and parameter 1 is at 'worker2'"));
    CHECK((co_await thrown_by(made({}, {}))) == errc::invalid_argument);
  });
}

TEST_CASE("optim lbfgs: a closure that throws gives the step up, and others get their turn") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto opt = co_await weft::optim::lbfgs::create(me, weights, LBFGSOptions(0.1));
    const auto sgd = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, weights, torch::optim::SGDOptions(0.1));
    int computed = 0;
    bool breaks = true;
    const auto closure = [&](context ctx) -> asio::awaitable<at::Tensor> {
      if (breaks && ++computed == 2) throw std::runtime_error("no loss");
      const at::Tensor l = (co_await there.call<&layer::forward>(input())).pow(2).sum();
      co_await ctx.backward(l);
      co_return l;
    };
    std::string text;
    try {
      static_cast<void>(co_await opt.step(closure));
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    CHECK(text == "no loss");
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      co_await ctx.backward((co_await there.call<&layer::forward>(input())).sum());
      co_await sgd.step(ctx);  // waits for its turn
    });
    breaks = false;
    const double first = co_await opt.step(closure);
    CHECK((co_await opt.step(closure)) < first);
  });
}

TEST_CASE("optim lbfgs: a step that is given up at any moment lets others have their turn") {
  run_workers(2, over::tcp, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto opt = co_await weft::optim::lbfgs::create(me, weights, LBFGSOptions(0.1));
    const auto sgd = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, weights, torch::optim::SGDOptions(0.1));
    const auto closure = [&](context ctx) -> asio::awaitable<at::Tensor> {
      const at::Tensor l = (co_await there.call<&layer::forward>(input())).pow(2).sum();
      co_await ctx.backward(l);
      co_return l;
    };
    for (int turns = 0; turns < 20; ++turns) {  // of the loop: it gets a little further each time
      {
        auto given_up = me.spawn(opt.step(closure));
        for (int i = 0; i < turns; ++i) co_await asio::post(asio::use_awaitable);
      }
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        co_await ctx.backward((co_await there.call<&layer::forward>(input())).sum());
        co_await sgd.step(ctx, weft::within(std::chrono::seconds(20)));
      });
    }
  });
}

}  // namespace optim_tests
