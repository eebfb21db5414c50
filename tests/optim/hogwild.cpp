// SPDX-License-Identifier: BSL-1.0
// Several trainers on the same parameters, and what a step leaves alone.
#include "layers.hpp"
#include "stubborn.hpp"
#include <weft/core/event.hpp>
#include <weft/core/task_group.hpp>
#include <weft/optim/distributed.hpp>

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

namespace optim_tests {
using sgd = weft::optim::distributed<torch::optim::SGD>;

/// Trains with an optimizer of its own, or with the one that it is given.
asio::awaitable<void> train_with(worker& me, weft::rref<layer> shared, sgd optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    co_await weft::autograd::scope(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await shared.call<&layer::forward>(at::ones({1, 3}));
      co_await ctx.backward(out.sum());
      co_await optimizer.step(ctx);
    });
  }
}
asio::awaitable<void> train_alone(worker& me, weft::rref<layer> shared, int steps) {
  const auto weight = shared.remote<&layer::weight>();
  auto optimizer = co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0));
  co_await train_with(me, shared, optimizer, steps);
}

namespace {

asio::awaitable<void> in_two(worker& me, std::function<asio::awaitable<void>(weft::peer)> work) {
  co_await weft::with_task_group([&](weft::task_group& all) -> asio::awaitable<void> {
    for (int rank = 1; rank <= 2; ++rank) all.spawn(work(me.peer(rank)));
    co_return;
  });
}

TEST_CASE("optim: trainers that share one optimizer lose no step") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(3, how, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
      constexpr int steps = 50;
      auto shared = me.peer(0).make<layer>(1);
      const auto weight = shared.remote<&layer::weight>();
      auto optimizer = co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0));
      co_await in_two(me,
                      [=](weft::peer p) { return p.call<&train_with>(shared, optimizer, steps); });
      // The gradient of every step is one: all numbers on the way are exact.
      CHECK(at::equal(co_await weight.to_here(), start_of(1) - 2 * steps));
    });
  }
}

TEST_CASE("optim: trainers with an optimizer each train the same parameters") {
  run_workers(
      3, over::inproc, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
        constexpr int steps = 50;
        auto shared = me.peer(0).make<layer>(1);
        const auto weight = shared.remote<&layer::weight>();
        co_await in_two(me, [=](weft::peer p) { return p.call<&train_alone>(shared, steps); });
        // Without locks an update may be lost, but none is made up.
        const at::Tensor moved = start_of(1) - co_await weight.to_here();
        CHECK(moved.min().item<float>() >= 1);
        CHECK(moved.max().item<float>() <= 2 * steps);
      });
}

TEST_CASE("optim: steps of one object wait for each other") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    auto optimizer =
        co_await weft::optim::distributed<stubborn>::create(me, {weight}, stubborn_options());
    stubborn::door().close();
    const auto served = [&all] { return all.at(1).stats().served; };
    const auto step = [&]() -> asio::awaitable<void> {
      co_await weft::autograd::scope(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor out = co_await l.call<&layer::forward>(input());
        co_await ctx.backward(out.sum());
        co_await optimizer.step(ctx);
      });
    };
    auto first = me.spawn(step());
    CHECK(co_await eventually([] { return stubborn::door().arrived() == 1; }));
    const auto before = served();
    auto second = me.spawn(step());
    // Its step has arrived (after its forward call), and is not inside.
    CHECK(co_await eventually([&] { return served() >= before + 2; }));
    CHECK(stubborn::door().arrived() == 1);
    stubborn::door().open();
    co_await std::move(first);
    co_await std::move(second);
    CHECK(stubborn::door().arrived() == 2);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) + 2));
  });
}

TEST_CASE("optim: the user's grad and the parameter's version stay") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    co_await l.call<&layer::set_grad>(at::full({3, 3}, 42));
    const auto version = co_await l.call<&layer::version>();
    auto optimizer = co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0));
    co_await train_with(me, l, optimizer, 2);
    CHECK(at::equal(co_await l.call<&layer::grad>(), at::full({3, 3}, 42)));
    CHECK(co_await l.call<&layer::version>() == version);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 2));
  });
}

/// Forward through l twice, so that its weight is saved; `between` runs; then backward.
asio::awaitable<weft::error> backward_after(worker& me, weft::rref<layer> l,
                                            asio::awaitable<void> between) {
  co_return co_await weft::autograd::scope(me, [&](context ctx) -> asio::awaitable<weft::error> {
    at::Tensor out = co_await l.call<&layer::forward>(input());
    out = co_await l.call<&layer::forward>(out);
    co_await weft::with_scope(me.context(), weft::make_ref<weft::scope>(), std::move(between));
    co_return co_await thrown_by(ctx.backward(out.sum()));
  });
}

TEST_CASE("optim: a step between another context's forward and backward does not disturb it") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    auto optimizer = co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0));
    const weft::error stepped = co_await backward_after(me, l, train_with(me, l, optimizer, 1));
    INFO(stepped.message());
    CHECK_FALSE(stepped);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1));

    // What a step on the parameter itself would do.
    const weft::error changed = co_await backward_after(me, l, l.call<&layer::change_in_place>());
    CHECK(changed == weft::errc::autograd_pass_aborted);
    CHECK(changed.message().find("modified by an inplace operation") != std::string::npos);
  });
}

}  // namespace
}  // namespace optim_tests
