// SPDX-License-Identifier: BSL-1.0
// Parameter groups, and schedulers of learning rates: as in one process.
#include "layers.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/optim/lr_scheduler.hpp>

#include <torch/optim/adam.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <utility>
#include <vector>

namespace optim_tests {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using weft::errc;
using weft::optim::distributed;
using weft::optim::lr_scheduler;

/// Two layers at two workers, and a parameter of the trainer, in three groups, of which one has
/// parameters of two workers; beside the same in one process.
template <class Optimizer, class Options>
struct grouped {
  std::vector<at::Tensor> local{start_of(1), start_of(2), start_of(3), start_of(0)};
  Optimizer one;
  at::Tensor own = start_of(0);
  distributed<Optimizer> all{};
  weft::rref<layer> first, second, third;
  std::vector<weft::rref<at::Tensor>> weights;

  explicit grouped(const std::vector<Options>& o) : one({local[0], local[1]}, o[0]) {
    one.add_param_group({{local[2]}, std::make_unique<Options>(o[1])});
    one.add_param_group({{local[3]}, std::make_unique<Options>(o[2])});
  }
  asio::awaitable<void> make(worker& me, const std::vector<Options>& o) {
    first = me.peer(1).make<layer>(1);
    second = me.peer(2).make<layer>(2);
    third = me.peer(2).make<layer>(3);
    weights = {first.template remote<&layer::weight>(), second.template remote<&layer::weight>(),
               third.template remote<&layer::weight>(), me.share(own)};
    using group = weft::optim::parameter_group<Optimizer>;
    std::vector<group> groups{group{{weights[0], weights[1]}, o[0]}, group{{weights[2]}, o[1]},
                              group{{weights[3]}, o[2]}};
    all = co_await distributed<Optimizer>::create(me, std::move(groups));
    CHECK(all.size() == 3);
  }
  asio::awaitable<void> step(worker& me) {
    one.zero_grad();
    loss_of(input().matmul(local[0]).matmul(local[1]).matmul(local[2]), local[3]).backward();
    one.step();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor x = co_await first.call<&layer::forward>(input());
      x = co_await second.call<&layer::forward>(x);
      x = co_await third.call<&layer::forward>(x);
      co_await ctx.backward(loss_of(x, own));
      co_await all.step(ctx);
    });
    for (std::size_t i = 0; i < local.size(); ++i) {
      CAPTURE(i);
      const at::Tensor there = co_await weights[i].to_here();
      CHECK(at::equal(there.detach(), local[i].detach()));
    }
  }
};

template <class Optimizer, class Options>
void check_groups(const std::vector<Options>& o, const Options& later) {
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    grouped<Optimizer, Options> g(o);
    co_await g.make(me, o);
    for (int i = 0; i < 2; ++i) co_await g.step(me);
    const auto options = co_await g.all.options();
    REQUIRE(options.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK((options[i] == o[i]));

    co_await g.all.set_options(1, later);
    g.one.param_groups()[1].set_options(std::make_unique<Options>(later));
    CHECK(((co_await g.all.options())[1] == later));
    CHECK(((co_await g.all.options())[0] == o[0]));
    for (int i = 0; i < 2; ++i) co_await g.step(me);

    // A state goes from one to the other, with each group's options.
    if constexpr (weft::optim::detail::state_is_known<Optimizer>) {
      const auto state = co_await g.all.state_dict();
      grouped<Optimizer, Options> other(o);
      co_await other.make(me, o);
      co_await other.all.load_state_dict(state);
      const auto loaded = co_await other.all.state_dict();
      CHECK(loaded.size() == state.size());
    }
    const auto e = co_await thrown_by(g.all.set_options(3, later));
    CHECK(e == errc::remote_exception);
    CHECK(says(e, "there is no parameter group 3"));
    co_await g.step(me);
  });
}

TEST_CASE("optim groups: each has its options, as in one process") {
  check_groups<SGD, SGDOptions>(
      {SGDOptions(0.05).momentum(0.5), SGDOptions(0.01), SGDOptions(0.1).weight_decay(0.5)},
      SGDOptions(0.5));
  check_groups<Adam, AdamOptions>(
      {AdamOptions(0.05), AdamOptions(0.01).amsgrad(true), AdamOptions(0.1).weight_decay(0.25)},
      AdamOptions(0.5).amsgrad(true));
}

TEST_CASE("optim groups: no parameter at all, and options that libtorch refuses") {
  run_workers(2, [&](workers&, worker& me) -> asio::awaitable<void> {
    using group = weft::optim::parameter_group<SGD>;
    auto none = distributed<SGD>::create(me, std::vector<group>{group{{}, SGDOptions(0.1)}});
    CHECK((co_await thrown_by([](auto make) -> asio::awaitable<void> {
            static_cast<void>(co_await std::move(make));
          }(std::move(none)))) == errc::invalid_argument);
    const auto l = me.peer(1).make<layer>(1), other = me.peer(1).make<layer>(2);
    std::vector<group> bad{group{{l.remote<&layer::weight>()}, SGDOptions(0.1)},
                           group{{other.remote<&layer::weight>()}, SGDOptions(-1)}};
    auto refused = distributed<SGD>::create(me, std::move(bad));
    const auto e = co_await thrown_by([](auto make) -> asio::awaitable<void> {
      static_cast<void>(co_await std::move(make));
    }(std::move(refused)));
    CAPTURE(e.message());
    CHECK(e == errc::remote_exception);
    CHECK(says(e, "Invalid learning rate"));
  });
}

TEST_CASE("optim schedulers: StepLR over groups, as in one process") {
  const std::vector<SGDOptions> o{SGDOptions(0.05).momentum(0.5), SGDOptions(0.01),
                                  SGDOptions(0.1)};
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    grouped<SGD, SGDOptions> g(o);
    co_await g.make(me, o);
    torch::optim::StepLR local(g.one, 2, 0.5);
    auto lr = co_await lr_scheduler<torch::optim::StepLR, SGD>::create(g.all, 2u, 0.5);
    for (int i = 0; i < 6; ++i) {
      co_await g.step(me);
      local.step();
      co_await lr.step();
      const auto now = co_await g.all.options();
      for (std::size_t k = 0; k < 3; ++k) {
        CHECK(now[k].lr() == g.one.param_groups()[k].options().get_lr());
        CHECK(lr.learning_rates()[k] == now[k].lr());
      }
    }
    CHECK(lr.learning_rates()[0] < 0.05 / 3);
  });
}

TEST_CASE("optim schedulers: one that looks at a metric") {
  using plateau = torch::optim::ReduceLROnPlateauScheduler;
  const std::vector<SGDOptions> o{SGDOptions(0.5), SGDOptions(0.1), SGDOptions(0.1)};
  run_workers(3, [&](workers&, worker& me) -> asio::awaitable<void> {
    grouped<SGD, SGDOptions> g(o);
    co_await g.make(me, o);
    auto lr = co_await lr_scheduler<plateau, SGD>::create(g.all, plateau::min, 0.5f, 1);
    for (const float loss : {5.0f, 5.0f, 5.0f, 5.0f}) co_await lr.step(loss);
    CHECK((co_await g.all.options())[0].lr() < 0.5);
    CHECK((co_await g.all.options())[0].lr() == lr.learning_rates()[0]);
  });
}

TEST_CASE("optim groups: a scheduler goes on from options that were set meanwhile") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1).momentum(0.9));
    auto lr = co_await lr_scheduler<torch::optim::StepLR, SGD>::create(sgd, 2, 0.1);
    co_await lr.step();
    co_await sgd.set_options(SGDOptions(0.5).momentum(0.5).weight_decay(0.01));
    for (const double expected : {0.5, 0.05, 0.05, 0.005}) {
      co_await lr.step();
      const auto now = co_await sgd.options();
      CHECK(now[0].lr() == doctest::Approx(expected));
      CHECK(now[0].momentum() == 0.5);
      CHECK(now[0].weight_decay() == 0.01);
    }
  });
}

}  // namespace optim_tests
