// SPDX-License-Identifier: BSL-1.0
// Schedules, clipping, and state that is saved and loaded, as in one process.
#include "layers.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/optim/module.hpp>

#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace optim_tests {

struct net : torch::nn::Module {
  explicit net(int seed) {
    weight = register_parameter("weight", start_of(seed));
    seen = register_buffer("seen", at::zeros({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    seen.add_(1);
    return at::matmul(x, weight);
  }
  at::Tensor weight, seen;
};

namespace {

using namespace std::chrono_literals;
using namespace weft::autograd;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using weft::errc;
using weft::rref;

/// Layers at two workers and a parameter of the trainer.
struct trained {
  rref<layer> first, second;
  at::Tensor own = start_of(0);
  std::vector<rref<at::Tensor>> parameters;

  explicit trained(worker& me, int seed = 1)
      : first(me.peer(1).make<layer>(seed)), second(me.peer(2).make<layer>(seed + 1)) {
    parameters = {second.remote<&layer::weight>(), me.share(own), first.remote<&layer::weight>()};
  }
  template <class Step>
  asio::awaitable<void> steps(worker& me, int count, Step step) {
    for (int i = 0; i < count; ++i) {
      co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor hidden = co_await first.call<&layer::forward>(input());
        const at::Tensor out = co_await second.call<&layer::forward>(hidden);
        co_await ctx.backward(loss_of(out, own));
        co_await step(ctx);
      });
    }
  }
  asio::awaitable<std::vector<at::Tensor>> values() {
    co_return std::vector<at::Tensor>{co_await parameters[2].to_here(),
                                      co_await parameters[0].to_here(), own.detach().clone()};
  }
};
/// The same in one process.
struct trained_here {
  std::vector<at::Tensor> parameters{start_of(1), start_of(2), start_of(0)};
  void backward() {
    for (at::Tensor& p : parameters) p.mutable_grad() = at::Tensor();
    loss_of(at::matmul(at::matmul(input(), parameters[0]), parameters[1]), parameters[2])
        .backward();
  }
};
bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}
bool all_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::allclose(a[i], b[i], 1e-5, 1e-6)) return false;
  }
  return true;
}

TEST_CASE("optim set_options: a schedule is that of one process, and momentum stays") {
  trained_here local;
  {
    SGD sgd(local.parameters, SGDOptions(0.5).momentum(0.5));
    for (int i = 0; i < 4; ++i) {
      if (i == 2) {
        static_cast<SGDOptions&>(sgd.param_groups()[0].options()).lr(0.125).weight_decay(0.25);
      }
      local.backward();
      sgd.step();
    }
  }
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    trained there(me);
    auto sgd = co_await weft::optim::distributed<SGD>::create(me, there.parameters,
                                                              SGDOptions(0.5).momentum(0.5));
    const auto step = [&](context ctx) { return sgd.step(ctx); };
    co_await there.steps(me, 2, step);
    co_await sgd.set_options(SGDOptions(0.125).momentum(0.5).weight_decay(0.25));
    co_await there.steps(me, 2, step);
    CHECK(all_equal(co_await there.values(), local.parameters));

    const weft::error refused = co_await thrown_by(sgd.set_options(SGDOptions(-1)));
    INFO(refused.message());
    CHECK(refused == errc::remote_exception);
    CHECK(refused.message().find("learning rate") != std::string::npos);
    co_await there.steps(me, 1, step);  // with those that it had
    CHECK_FALSE(all_equal(co_await there.values(), local.parameters));
    const weft::optim::distributed<SGD> empty;
    co_await empty.set_options(SGDOptions(1));
    CHECK((co_await empty.state_dict()).empty());
  });
}

TEST_CASE("optim clip_norm: gradients are clipped by the norm over all workers") {
  for (const double most : {0.25, 100.0}) {
    CAPTURE(most);
    trained_here local;
    std::vector<double> norms;
    {
      SGD sgd(local.parameters, SGDOptions(0.5));
      for (int i = 0; i < 3; ++i) {
        local.backward();
        norms.push_back(torch::nn::utils::clip_grad_norm_(local.parameters, most));
        sgd.step();
      }
    }
    CHECK(norms[0] > 0.5);
    run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
      trained there(me);
      auto sgd =
          co_await weft::optim::distributed<SGD>::create(me, there.parameters, SGDOptions(0.5));
      std::vector<double> seen;
      co_await there.steps(me, 3, [&](context ctx) -> asio::awaitable<void> {
        seen.push_back(co_await sgd.gradient_norm(ctx));
        co_await sgd.step(ctx, weft::optim::clip_norm{most}, weft::within(9s));
        CHECK(std::abs(co_await sgd.gradient_norm(ctx) - seen.back()) < 1e-9);  // they stay
      });
      for (std::size_t i = 0; i < seen.size(); ++i) {
        CHECK(std::abs(seen[i] - norms[i]) < 1e-5 * norms[i]);
      }
      CHECK(all_close(co_await there.values(), local.parameters));
    });
  }
}

TEST_CASE("optim clip_norm: gradients that are not finite are said, and nobody steps") {
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    trained there(me);
    auto sgd =
        co_await weft::optim::distributed<SGD>::create(me, there.parameters, SGDOptions(0.5));
    const auto before = co_await there.values();
    co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
      CHECK(co_await sgd.gradient_norm(ctx) == 0);
      const at::Tensor hidden = co_await there.first.call<&layer::forward>(input());
      co_await ctx.backward((hidden.sum() + there.own.sum()) *
                            std::numeric_limits<double>::infinity());
      const weft::error e = co_await thrown_by(sgd.step(ctx, weft::optim::clip_norm{1}));
      INFO(e.message());
      CHECK(e == errc::invalid_argument);
      CHECK(e.ran() == weft::call_progress::not_executed);
    });
    CHECK(all_equal(co_await there.values(), before));
  });
}

/// Trained, saved, loaded into others that go on: as if nothing had been.
template <class Optimizer, class Options>
void check_checkpoint(const Options& options) {
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    using distributed = weft::optim::distributed<Optimizer>;
    trained one(me);
    auto optimizer = co_await distributed::create(me, one.parameters, options);
    const auto before = co_await optimizer.state_dict();
    CHECK(before.size() == 3);
    co_await one.steps(me, 3, [&](context ctx) { return optimizer.step(ctx); });
    const auto saved = co_await optimizer.state_dict();
    const auto values = co_await one.values();
    CHECK_FALSE(saved[0][0].empty());

    trained other(me, 5);
    auto again = co_await distributed::create(me, other.parameters, options);
    co_await other.steps(me, 1, [&](context ctx) { return again.step(ctx); });
    co_await other.first.template call<&layer::set_weight>(values[0]);
    co_await other.second.template call<&layer::set_weight>(values[1]);
    other.own.set_data(values[2].clone());
    co_await again.load_state_dict(saved);
    CHECK(all_equal(co_await other.values(), values));
    co_await one.steps(me, 2, [&](context ctx) { return optimizer.step(ctx); });
    co_await other.steps(me, 2, [&](context ctx) { return again.step(ctx); });
    CHECK_FALSE(all_equal(co_await other.values(), values));
    CHECK(all_equal(co_await other.values(), co_await one.values()));
    // What was saved is a copy.
    const auto later = co_await optimizer.state_dict();
    CHECK_FALSE(at::equal(later[0][0].begin()->second, saved[0][0].begin()->second));
  });
}

TEST_CASE("optim state_dict: who loads it goes on as who saved it") {
  check_checkpoint<torch::optim::Adam>(torch::optim::AdamOptions(0.05).amsgrad(true));
  check_checkpoint<SGD>(SGDOptions(0.1).momentum(0.9));
  check_checkpoint<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1).lr_decay(0.1));
  check_checkpoint<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
}

TEST_CASE("optim state_dict: what does not fit is refused, and nothing of it is loaded") {
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    using torch::optim::Adam;
    trained there(me);
    auto adam = co_await weft::optim::distributed<Adam>::create(me, there.parameters,
                                                                torch::optim::AdamOptions(0.1));
    co_await there.steps(me, 2, [&](context ctx) { return adam.step(ctx); });
    const auto good = co_await adam.state_dict();
    REQUIRE(good.size() == 3);
    CHECK(good[0][0].at("step").item<std::int64_t>() == 2);
    const auto refused = [&](auto change) -> asio::awaitable<std::string> {
      auto bad = good;
      change(bad);
      const weft::error e = co_await thrown_by(adam.load_state_dict(bad));
      CHECK(e);
      co_return e.message();
    };
    CHECK((co_await refused([](auto& s) { s.pop_back(); })).find("2 owners") != std::string::npos);
    CHECK((co_await refused([](auto& s) { s[0].clear(); })).find("of 0 parameters") !=
          std::string::npos);
    CHECK((co_await refused([](auto& s) { s[0][0].erase("step"); })).find("lacks step") !=
          std::string::npos);
    CHECK((co_await refused([](auto& s) {
            s[0][0]["step"] = at::ones({2});
          })).find("no number of steps") != std::string::npos);
    CHECK((co_await refused([](auto& s) {
            s[0][0]["exp_avg"] = at::ones({2});
          })).find("another shape or kind") != std::string::npos);
    CHECK((co_await refused([](auto& s) {
            s[0][0]["momentum"] = at::ones({3, 3});
          })).find("which this optimizer does not keep") != std::string::npos);
    const auto after = co_await adam.state_dict();
    for (std::size_t i = 0; i < 3; ++i) {
      for (const auto& [name, value] : good[i][0]) CHECK(at::equal(after[i][0].at(name), value));
    }
  });
}

TEST_CASE("optim module: parameters and state of a module elsewhere") {
  run_workers(2, [&](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<net>(1);
    const auto parameters = co_await weft::optim::parameters(there);
    REQUIRE(parameters.size() == 1);
    auto sgd = co_await weft::optim::distributed<SGD>::create(me, parameters, SGDOptions(0.5));
    co_await with_context(me, [&](context ctx) -> asio::awaitable<void> {
      co_await ctx.backward((co_await there.call<&net::forward>(input())).sum());
      co_await sgd.step(ctx);
    });
    const auto state = co_await weft::optim::state_dict(there, weft::within(9s));
    REQUIRE(state.size() == 2);
    CHECK(state.at("seen").item<float>() == 1);
    CHECK_FALSE(state.at("weight").requires_grad());
    CHECK_FALSE(at::equal(state.at("weight"), start_of(1)));

    const auto here = me.make<net>(3);
    co_await weft::optim::load_state_dict(here, state);
    const auto loaded = co_await weft::optim::state_dict(here);
    CHECK(at::equal(loaded.at("weight"), state.at("weight")));
    CHECK(at::equal(loaded.at("seen"), state.at("seen")));
    CHECK(here.local()->weight.requires_grad());
    CHECK_FALSE(here.local()->weight.is_alias_of(state.at("weight")));

    auto bad = state;
    bad.erase("seen");
    bad["weight"] = at::zeros({2});
    bad["bias"] = at::zeros({3});
    const weft::error e = co_await thrown_by(weft::optim::load_state_dict(here, bad));
    INFO(e.message());
    CHECK(e == errc::remote_exception);
    CHECK(e.message().find("the state has no 'seen'") != std::string::npos);
    CHECK(e.message().find("another shape or kind of 'weight'") != std::string::npos);
    CHECK(e.message().find("the module has no 'bias'") != std::string::npos);
    CHECK(at::equal((co_await weft::optim::state_dict(here)).at("weight"), state.at("weight")));
  });
}

}  // namespace
}  // namespace optim_tests
