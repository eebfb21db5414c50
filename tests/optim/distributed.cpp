// SPDX-License-Identifier: BSL-1.0
// Distributed optimizers that do what one process would do.
#include "layers.hpp"
#include <weft/engine/services/context_state.hpp>
#include <weft/optim/distributed.hpp>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace optim_tests {
namespace {

using namespace weft::autograd;

/// Layers at two workers and a parameter of the trainer, trained for some steps, end up as in one
/// process, bit for bit.
template <class Optimizer, class Options>
void check_against_one_process(const Options& options) {
  constexpr int steps = 4;
  const at::Tensor x = input();

  at::Tensor local[] = {start_of(1), start_of(2), start_of(0)};
  {
    Optimizer optimizer(std::vector<at::Tensor>(std::begin(local), std::end(local)), options);
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      loss_of(at::matmul(at::matmul(x, local[0]), local[1]), local[2]).backward();
      optimizer.step();
    }
  }

  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    auto first = me.peer(1).make<layer>(1);
    auto second = me.peer(2).make<layer>(2);
    at::Tensor own = start_of(0);
    const auto first_weight = first.remote<&layer::weight>();
    const auto second_weight = second.remote<&layer::weight>();
    auto optimizer = co_await weft::optim::distributed<Optimizer>::create(
        me, {second_weight, me.share(own), first_weight}, options);
    CHECK(optimizer.size() == 3);

    for (int i = 0; i < steps; ++i) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor hidden = co_await first.template call<&layer::forward>(x);
        const at::Tensor out = co_await second.template call<&layer::forward>(hidden);
        co_await ctx.backward(loss_of(out, own));
        co_await optimizer.step(ctx);
      });
    }
    const at::Tensor after[] = {co_await first_weight.to_here(), co_await second_weight.to_here(),
                                own};
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK(at::equal(after[i], local[i]));
      CHECK_FALSE(at::equal(after[i], start_of(i == 2 ? 0 : static_cast<int>(i) + 1)));
    }
    CHECK_FALSE(own.grad().defined());
  });
}

TEST_CASE("optim adam: as in one process") {
  using torch::optim::AdamOptions;
  check_against_one_process<torch::optim::Adam>(AdamOptions(0.05));
  check_against_one_process<torch::optim::Adam>(AdamOptions(0.01).amsgrad(true));
  check_against_one_process<torch::optim::Adam>(
      AdamOptions(0.01).betas({0.5, 0.75}).eps(1e-3).weight_decay(0.25));
}

TEST_CASE("optim adamw: as in one process") {
  using torch::optim::AdamWOptions;
  check_against_one_process<torch::optim::AdamW>(AdamWOptions(0.05).amsgrad(true));
  check_against_one_process<torch::optim::AdamW>(
      AdamWOptions(0.02).betas({0.25, 0.5}).eps(1e-4).weight_decay(0.5));
}

TEST_CASE("optim sgd: as in one process") {
  using torch::optim::SGDOptions;
  check_against_one_process<torch::optim::SGD>(SGDOptions(0.05));
  check_against_one_process<torch::optim::SGD>(
      SGDOptions(1e-3).momentum(1).weight_decay(1).nesterov(true));
  check_against_one_process<torch::optim::SGD>(SGDOptions(0.01).momentum(0.5).dampening(0.25));
}

TEST_CASE("optim adagrad: as in one process") {
  using torch::optim::AdagradOptions;
  check_against_one_process<torch::optim::Adagrad>(AdagradOptions(0.05));
  check_against_one_process<torch::optim::Adagrad>(
      AdagradOptions(0.05).lr_decay(0.5).weight_decay(0.25).initial_accumulator_value(0.5).eps(
          1e-3));
}

TEST_CASE("optim rmsprop: as in one process") {
  using torch::optim::RMSpropOptions;
  check_against_one_process<torch::optim::RMSprop>(RMSpropOptions(0.05));
  check_against_one_process<torch::optim::RMSprop>(
      RMSpropOptions(0.01).alpha(0.5).eps(1e-3).weight_decay(0.25).momentum(0.5).centered(true));
}

TEST_CASE("optim: parameters without gradient are left as they are") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    auto used = me.peer(1).make<layer>(1);
    auto frozen = me.peer(2).make<layer>(2);
    co_await frozen.call<&layer::freeze>();
    const at::Tensor unused = start_of(3);
    const auto used_weight = used.remote<&layer::weight>();
    const auto frozen_weight = frozen.remote<&layer::weight>();
    // Weight decay and momentum would change them, if only by a zero gradient.
    auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, {used_weight, frozen_weight, me.share(unused)},
        torch::optim::SGDOptions(0.5).momentum(0.5).weight_decay(1));
    for (int i = 0; i < 2; ++i) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor hidden = co_await used.call<&layer::forward>(input());
        const at::Tensor out = co_await frozen.call<&layer::forward>(hidden);
        co_await ctx.backward(out.sum());
        co_await optimizer.step(ctx);
      });
    }
    CHECK_FALSE(at::equal(co_await used_weight.to_here(), start_of(1)));
    CHECK(at::equal(co_await frozen_weight.to_here(), start_of(2)));
    CHECK(at::equal(unused, start_of(3)));
  });
}

TEST_CASE(
    "optim: a step uses the sum of a context's passes, and a context without any does nothing") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto remote = me.peer(1).make<layer>(1);
    const auto weight = remote.remote<&layer::weight>();
    auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, {weight}, torch::optim::SGDOptions(1.0));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      co_await optimizer.step(ctx);
      CHECK(at::equal(co_await weight.to_here(), start_of(1)));
    });
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      for (int pass = 0; pass < 2; ++pass) {
        const at::Tensor out = co_await remote.call<&layer::forward>(at::ones({1, 3}));
        co_await ctx.backward(out.sum());
      }
      co_await optimizer.step(ctx);
    });
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 2));
  });
}

/// A pass of `state` at worker 0, begun by worker 1, that has run here: only its `end` is missing.
std::shared_ptr<local_pass> pass_that_ran(weft::engine::context_state& state,
                                          const at::Tensor& weight) {
  const std::vector<at::Tensor> sent{weight * 2};
  const std::lock_guard lock(state.mutex);
  state.sends.add(record_send(sent, {1, ++state.last_message}));
  const pass_id id{state.id, 1, 1};
  auto pass = std::make_shared<local_pass>(id, 0, 2, state.sends);
  state.passes.emplace(id, pass);
  pass->arrive(1, need_message{0, graph_retention::release, {state.last_message}});
  pass->arrive(1, go_message{});
  pass->arrive(1, grad_message{state.last_message, 1, {1}}, {at::ones({3, 3})});
  REQUIRE(pass->claim());
  pass->evaluate([](worker_rank, packed_gradients&&, bool) {});
  static_cast<void>(pass->completed());
  return pass;
}

TEST_CASE("optim: a step waits for a pass that ran at the owner until it is known to be good") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor weight = start_of(0);
    const auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(1.0));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      weft::engine::context_state& state = *weft::engine::state_of(ctx.state());
      const auto pass = pass_that_ran(state, weight);
      auto stepping = me.spawn(optimizer.step(ctx));
      CHECK(co_await eventually([&] {
        const std::lock_guard lock(state.mutex);
        return state.pass_over != nullptr;
      }));
      CHECK_FALSE(stepping.ready());
      CHECK(at::equal(weight, start_of(0)));
      weft::intrusive_ptr<weft::event> over;
      {
        const std::lock_guard lock(state.mutex);
        REQUIRE(pass->arrive(1, end_message{}).size() == 1);
        state.gradients.merge(std::move(pass->gradients()));
        state.passes.clear();
        over = std::exchange(state.pass_over, nullptr);
      }
      over->set();
      co_await std::move(stepping);
      CHECK(at::equal(weight, start_of(0) - 2));
    });
  });
}

TEST_CASE("optim: over every transport") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto remote = me.peer(1).make<layer>(1);
    const auto weight = remote.remote<&layer::weight>();
    auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, {weight}, torch::optim::SGDOptions(1.0));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await remote.call<&layer::forward>(at::ones({1, 3}));
      co_await ctx.backward(out.sum());
      co_await optimizer.step(ctx);
    });
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1));
  });
}

}  // namespace
}  // namespace optim_tests
