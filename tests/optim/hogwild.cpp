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
using namespace std::chrono_literals;
using sgd = weft::optim::distributed<torch::optim::SGD>;

/// Trains with an optimizer of its own, or with the one that it is given.
asio::awaitable<void> train_with(worker& me, weft::rref<layer> shared, sgd optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
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
        // Steps that write the same memory wait for each other, whoever made the optimizer.
        CHECK(at::equal(co_await weight.to_here(), start_of(1) - 2 * steps));
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
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor out = co_await l.call<&layer::forward>(input());
        co_await ctx.backward(out.sum());
        co_await optimizer.step(ctx);
      });
    };
    auto first = me.spawn(step());
    CHECK(co_await eventually([] { return stubborn::door().arrived() == 1; }));
    const auto before = served();
    auto second = me.spawn(step());
    // Its step has arrived (after its forward call), heard that another is inside, and waits.
    CHECK(co_await eventually([&] { return served() >= before + 3; }));
    CHECK(stubborn::door().arrived() == 1);
    stubborn::door().open();
    co_await std::move(first);
    co_await std::move(second);
    CHECK(stubborn::door().arrived() == 2);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) + 2));
  });
}

/// Runs `count` contexts at once, each of which steps an optimizer that is stuck at its door, and
/// opens it when they have all asked. Returns how many were inside together.
asio::awaitable<int> together(workers& all, worker& me, weft::rref<layer> l,
                              std::vector<weft::optim::distributed<stubborn>> optimizers) {
  stubborn::door().close();
  const auto step = [&](std::size_t i) -> asio::awaitable<void> {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await l.call<&layer::forward>(input());
      co_await ctx.backward(out.sum());
      co_await optimizers[i].step(ctx);
    });
  };
  std::vector<weft::future<void>> steps;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const auto before = all.at(1).stats().served;
    steps.push_back(me.spawn(step(i)));
    // The first is inside; the others have heard so, and wait for their turn.
    const std::uint64_t calls = i == 0 ? 2 : 3;
    CHECK(co_await eventually([&] { return all.at(1).stats().served >= before + calls; }));
  }
  // While they wait, the pool and the worker's thread do other things.
  for (int i = 0; i < 10; ++i) {
    const auto out =
        co_await l.call<&layer::forward>(input(), weft::within(20s), weft::as_expected);
    CHECK(out.has_value());
  }
  CHECK(co_await eventually([] { return stubborn::door().arrived() >= 1; }));
  const int inside = stubborn::door().arrived();
  stubborn::door().open();
  for (auto& s : steps) co_await std::move(s);
  co_return inside;
}

TEST_CASE("optim: steps that wait for each other leave the pool to others") {
  for (const unsigned io_threads : io_ways()) {
    run_workers(2, over::tcp, with_io_threads(io_threads),
                [](workers& all, worker& me) -> asio::awaitable<void> {
                  auto l = me.peer(1).make<layer>(1);
                  const auto weight = l.remote<&layer::weight>();
                  const auto one = co_await weft::optim::distributed<stubborn>::create(
                      me, {weight}, stubborn_options());
                  CHECK(co_await together(all, me, l, {one, one, one, one, one}) == 1);
                  CHECK(at::equal(co_await weight.to_here(), start_of(1) + 5));
                });
  }
}

TEST_CASE("optim: several optimizers of one parameter never write it at once") {
  run_workers(2, over::tcp, with_io_threads(1),
              [](workers& all, worker& me) -> asio::awaitable<void> {
                auto l = me.peer(1).make<layer>(1);
                const auto weight = l.remote<&layer::weight>();
                std::vector<weft::optim::distributed<stubborn>> each;
                for (int i = 0; i < 3; ++i) {
                  each.push_back(co_await weft::optim::distributed<stubborn>::create(
                      me, {weight}, stubborn_options()));
                }
                CHECK(co_await together(all, me, l, each) == 1);
                CHECK(at::equal(co_await weight.to_here(), start_of(1) + 3));
              });
}

TEST_CASE("optim: a step given up while it waits lets the others go on") {
  run_workers(2, over::tcp, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    const auto optimizer =
        co_await weft::optim::distributed<stubborn>::create(me, {weight}, stubborn_options());
    stubborn::door().close();
    const auto step = [&](weft::within limit) -> asio::awaitable<weft::error> {
      co_return co_await weft::autograd::with_context(
          me, [&](context ctx) -> asio::awaitable<weft::error> {
            const at::Tensor out = co_await l.call<&layer::forward>(input());
            co_await ctx.backward(out.sum());
            co_return co_await thrown_by(optimizer.step(ctx, limit));
          });
    };
    auto first = me.spawn(step(weft::within(60s)));
    CHECK(co_await eventually([] { return stubborn::door().arrived() == 1; }));
    CHECK(co_await step(weft::within(20ms)) == weft::errc::timed_out);
    co_await weight.to_here();  // behind the word that it was given up
    auto third = me.spawn(step(weft::within(std::chrono::hours::max())));
    stubborn::door().open();
    CHECK_FALSE(co_await std::move(first));
    CHECK_FALSE(co_await std::move(third));
    CHECK(at::equal(co_await weight.to_here(), start_of(1) + 2));
  });
}

TEST_CASE("optim: a parameter whose memory was replaced is trained where it is now") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    // With momentum: what the optimizer remembers stays with the parameter.
    const auto optimizer =
        co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0).momentum(1.0));
    co_await train_with(me, l, optimizer, 1);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1));
    co_await l.call<&layer::replace>(10.0);
    co_await train_with(me, l, optimizer, 1);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1 + 10 - 2));
    co_await l.call<&layer::transpose_memory>();
    co_await train_with(me, l, optimizer, 1);
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1 + 10 - 2 - 3));
  });
}

TEST_CASE("optim: a parameter that became another one is refused by a sentence") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const bool type : {true, false}) {
      auto l = me.peer(1).make<layer>(1);
      const auto weight = l.remote<&layer::weight>();
      const auto optimizer = co_await sgd::create(me, {weight}, torch::optim::SGDOptions(1.0));
      if (type) {
        co_await l.call<&layer::replace_by_double>();
      } else {
        co_await l.call<&layer::grow>();
      }
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const weft::error e = co_await thrown_by(optimizer.step(ctx));
        INFO(e.message());
        CHECK(e);
        CHECK(e.message().find("parameter 0") != std::string::npos);
        CHECK(e.message().find("make a new optimizer") != std::string::npos);
      });
    }
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
  co_return co_await weft::autograd::with_context(
      me, [&](context ctx) -> asio::awaitable<weft::error> {
        at::Tensor out = co_await l.call<&layer::forward>(input());
        out = co_await l.call<&layer::forward>(out);
        co_await weft::with_scope(weft::detail::context_of(me),
                                  weft::make_intrusive<weft::call_scope>(), std::move(between));
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
