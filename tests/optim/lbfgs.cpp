// SPDX-License-Identifier: BSL-1.0
// LBFGS, whose closure is a coroutine of the trainer: as in one process.
#include "layers.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/optim/lbfgs.hpp>

#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
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
    for (const std::int64_t length : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      CAPTURE(length);
      const auto bad = co_await thrown_by(made({weights[0]}, LBFGSOptions(1).history_size(length)));
      CHECK(says(bad, "LBFGS needs a history_size from 1 to 100000"));
    }
    const auto twice = co_await thrown_by(made({weights[0], weights[0]}, {}));
    CHECK(says(twice, "was given twice"));
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

TEST_CASE("optim lbfgs: a step that is given up as its turn comes lets others have theirs") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto opt = co_await weft::optim::lbfgs::create(me, weights, LBFGSOptions(0.1));
    const auto closure = [&](context ctx) -> asio::awaitable<at::Tensor> {
      const at::Tensor l = (co_await there.call<&layer::forward>(input())).pow(2).sum();
      co_await ctx.backward(l);
      co_return l;
    };
    using weft::optim::detail::write_turn;
    const at::Tensor weight = co_await there.call<&layer::weight>();  // inside one process
    const auto memory = weft::optim::detail::memory_of({weight});
    for (int turns = 0; turns < 40; ++turns) {
      auto held = weft::make_intrusive<write_turn>(memory);
      {
        auto given_up = me.spawn(opt.step(closure));
        for (int i = 0; i < turns; ++i) co_await asio::post(asio::use_awaitable);
        std::thread([&] { held = nullptr; }).join();
      }
      const auto mine = weft::make_intrusive<write_turn>(memory);
      co_await weft::event::wait(mine->granted);
    }
  });
}

TEST_CASE("optim lbfgs: an owner that is lost in a step, and a handle that is gone before it") {
  auto goes_on = with_io_threads(0);
  goes_on.on_loss = weft::loss_policy::go_on();
  run_workers(2, over::inproc, goes_on, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    int computed = 0;
    const auto closure = [&](context ctx) -> asio::awaitable<at::Tensor> {
      const at::Tensor l = (co_await there.call<&layer::forward>(input())).pow(2).sum();
      co_await ctx.backward(l);
      if (++computed == 8) all.at(0).link_to(1).mark_down(weft::error(errc::peer_died, "pulled"));
      co_return l;
    };
    std::optional<asio::awaitable<double>> step;
    {
      const auto opt =
          co_await weft::optim::lbfgs::create(me, weights, LBFGSOptions(0.1).max_iter(3));
      step.emplace(opt.step(closure));
    }
    CHECK((co_await std::move(*step)) > 0);
    const auto opt = co_await weft::optim::lbfgs::create(me, weights, LBFGSOptions(0.1));
    const auto lost = [&]() -> asio::awaitable<void> {
      static_cast<void>(co_await opt.step(closure));
    };
    const auto e = co_await thrown_by(lost());
    CAPTURE(e.message());
    CHECK((e == errc::peer_died || e == errc::rref_owner_died));
    CHECK(computed == 8);
  });
}

TEST_CASE("optim lbfgs: a loss that nobody waits for is refused") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    using namespace weft::optim::detail;
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto owner = co_await me.peer(1).call<&make_lbfgs>(weights, lbfgs_values());
    const auto begun = co_await owner.call<&lbfgs_owner::begin>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor l = (co_await there.call<&layer::forward>(input())).pow(2).sum();
      co_await ctx.backward(l);
      std::vector<weft::future<lbfgs_answer>> all;
      for (int i = 0; i < 50; ++i) {
        all.push_back(me.spawn(begun.first.call<&lbfgs_step::go_on>(1.0)));
      }
      int refused = 0;
      for (auto& each : all) {
        try {
          static_cast<void>(co_await std::move(each));
        } catch (const weft::rpc_error& e) {
          refused += std::string(e.what()).find("waits for no loss") != std::string::npos ? 1 : 0;
        }
      }
      CHECK(refused > 0);
      CHECK(refused < 50);
    });
  });
}

}  // namespace optim_tests
