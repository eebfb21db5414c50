// SPDX-License-Identifier: BSL-1.0
// Steps that ride on the end of a pass: they cost no message, and come only if all has succeeded.
#include "layers.hpp"
#include <weft/autograd/backward.hpp>
#include <weft/autograd/service.hpp>
#include <weft/optim/distributed.hpp>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace optim_tests {

using torch::optim::SGD;
using torch::optim::SGDOptions;
using weft::autograd_service;
using weft::errc;
using weft::autograd::graph_retention;
using weft::optim::distributed;

std::uint64_t frames_of(workers& all) {
  std::uint64_t n = 0;
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    n += all.at(r).use<autograd_service>().frames();
  }
  return n;
}

TEST_CASE("optim riding: as steps of their own, at all owners, without a message more") {
  for (const auto how : {over::inproc, over::tcp}) {
    run_workers(3, how, with_io_threads(0), [](workers& all, worker& me) -> asio::awaitable<void> {
      const at::Tensor mine[] = {start_of(0), start_of(0)};
      std::vector<std::vector<weft::rref<at::Tensor>>> weights;
      std::vector<std::pair<weft::rref<layer>, weft::rref<layer>>> layers;
      std::vector<distributed<SGD>> optimizers;
      for (int i = 0; i < 2; ++i) {
        layers.emplace_back(me.peer(1).make<layer>(1), me.peer(2).make<layer>(2));
        weights.push_back({layers[i].first.remote<&layer::weight>(),
                           layers[i].second.remote<&layer::weight>(), me.share(mine[i])});
        optimizers.push_back(
            co_await distributed<SGD>::create(me, weights[i], SGDOptions(0.1).momentum(0.5)));
      }
      std::uint64_t frames[2] = {};
      for (int step = 0; step < 4; ++step) {
        for (int i = 0; i < 2; ++i) {
          const std::uint64_t before = frames_of(all);
          co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
            at::Tensor x = co_await layers[i].first.call<&layer::forward>(input());
            x = co_await layers[i].second.call<&layer::forward>(x);
            const at::Tensor loss = loss_of(x, mine[i]);
            if (i == 0) {
              co_await ctx.backward(loss);
              co_await optimizers[i].step(ctx);
            } else {
              co_await ctx.backward(loss, {.then = optimizers[i].step_at_end()});
            }
          });
          if (i == 1) co_await optimizers[i].finish();  // behind the release, too
          CHECK(co_await eventually([&] {
            frames[i] = frames_of(all) - before;
            return frames[0] == 0 || i == 0 || frames[0] == frames[1];
          }));
        }
        for (std::size_t k = 0; k < 3; ++k) {
          CHECK(at::equal((co_await weights[0][k].to_here()).detach(),
                          (co_await weights[1][k].to_here()).detach()));
        }
      }
      CHECK_FALSE(at::equal(mine[1].detach(), start_of(0).detach()));
    });
  }
}

TEST_CASE("optim riding: an owner that the last pass does not reach steps with what it has") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto first = me.peer(1).make<layer>(1), second = me.peer(2).make<layer>(2);
    const std::vector weights{first.remote<&layer::weight>(), second.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor a = co_await first.call<&layer::forward>(input());
      const at::Tensor b = co_await second.call<&layer::forward>(input());
      co_await ctx.backward(a.sum());
      co_await ctx.backward(b.sum(), {.then = sgd.step_at_end()});
    });
    co_await sgd.finish();
    const at::Tensor gradient = input().t().matmul(at::ones({2, 3}));
    for (std::size_t i = 0; i < 2; ++i) {
      CAPTURE(i);
      CHECK(at::allclose((co_await weights[i].to_here()).detach(),
                         (start_of(static_cast<int>(i) + 1) - gradient).detach()));
    }
  });
}

/// Its backward throws.
struct breaks_in_backward : torch::autograd::Function<breaks_in_backward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("it breaks");
  }
};
at::Tensor break_later(const at::Tensor& x) { return breaks_in_backward::apply(x); }

TEST_CASE("optim riding: a pass that fails or is given up steps nowhere") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&layer::forward>(input());
      // There are gradients to step with.
      co_await ctx.backward(y.sum(), {.retention = graph_retention::retain});
      const at::Tensor z = co_await me.peer(2).call<&break_later>(y);
      const auto e =
          co_await thrown_by(ctx.backward(z.sum() + y.sum(), {.then = sgd.step_at_end()}));
      CHECK(e == errc::autograd_pass_aborted);
      const auto late =
          co_await thrown_by(ctx.backward(y.sum(), {.retention = graph_retention::retain,
                                                    .limit = std::chrono::nanoseconds(1),
                                                    .then = sgd.step_at_end()}));
      CHECK(late == errc::timed_out);
      {
        auto given_up = me.spawn(ctx.backward(y.sum(), {.then = sgd.step_at_end()}));
      }
    });
    co_await sgd.finish();
    CHECK(at::equal((co_await weights[0].to_here()).detach(), start_of(1).detach()));
  });
}

TEST_CASE("optim riding: from a loss that another worker keeps") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto y = there.remote<&layer::forward>(input());
      co_await weft::autograd::backward(
          ctx, y, {.gradients = {at::ones({2, 3})}, .then = sgd.step_at_end()});
    });
    co_await sgd.finish();
    CHECK_FALSE(at::equal((co_await weights[0].to_here()).detach(), start_of(1).detach()));
  });
}

TEST_CASE("optim riding: from a loss elsewhere, the step of a third worker outruns no release") {
  run_workers(3, over::tcp, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
    const auto first = me.peer(2).make<layer>(1), second = me.peer(1).make<layer>(2);
    const std::vector weights{first.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    at::Tensor before = start_of(1).detach();
    for (int i = 0; i < 30; ++i) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const auto y = second.remote<&layer::forward>(first.remote<&layer::forward>(input()));
        co_await weft::autograd::backward(
            ctx, y, {.gradients = {at::ones({2, 3})}, .then = sgd.step_at_end()});
      });
      co_await sgd.finish();
      const at::Tensor now = (co_await weights[0].to_here()).detach();
      REQUIRE_FALSE(at::equal(now, before));
      before = now;
    }
  });
}

/// A pass that begins here, though the caller made the context.
asio::awaitable<void> pass_of_mine(worker& me, at::Tensor y,
                                   std::vector<weft::autograd::riding_step> then) {
  co_await weft::autograd::this_context(me).backward(y.sum(), {.then = std::move(then)});
}

TEST_CASE("optim riding: nor does that of a pass that a function of another worker begins") {
  run_workers(3, over::tcp, with_io_threads(0), [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(2).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    at::Tensor before = start_of(1).detach();
    for (int i = 0; i < 30; ++i) {
      co_await weft::autograd::with_context(me, [&](context) -> asio::awaitable<void> {
        const at::Tensor y = co_await there.call<&layer::forward>(input());
        co_await me.peer(1).call<&pass_of_mine>(y, sgd.step_at_end());
      });
      co_await sgd.finish();
      const at::Tensor now = (co_await weights[0].to_here()).detach();
      REQUIRE_FALSE(at::equal(now, before));
      before = now;
    }
  });
}

/// Keeps a thread of a compute pool from when the gradient of a tensor is known.
std::atomic<bool> pool_goes_on = true;
asio::awaitable<at::Tensor> keeps_the_pool(worker& me, layer& l, at::Tensor x) {
  at::Tensor y = l.forward(x);
  y.register_hook([pool = me.compute_pool()](const at::Tensor&) {
    asio::post(pool, [] { pool_goes_on.wait(false); });
  });
  co_return y;
}

TEST_CASE(
    "optim riding: `finish` awaits steps whose sums are not known yet, and so does a release") {
  auto one_thread = with_io_threads(0);
  one_thread.compute_threads = 1;
  // The step comes with the end of the pass whose sums wait; or of another, which does not reach
  // the owner.
  for (const bool of_another : {false, true}) {
    CAPTURE(of_another);
    run_workers(2, over::inproc, one_thread, [&](workers&, worker& me) -> asio::awaitable<void> {
      const auto there = me.peer(1).make<layer>(1);
      const std::vector weights{there.remote<&layer::weight>()};
      const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor y = co_await there.call<&layer::forward>(input());
        const at::Tensor z = co_await there.call<&keeps_the_pool>(input());
        co_await ctx.backward(y.sum(), {.retention = graph_retention::retain});
        pool_goes_on = false;
        const auto then = sgd.step_at_end();
        using steps = std::vector<weft::autograd::riding_step>;
        co_await ctx.backward(z.sum(), {.then = of_another ? steps() : then});
        if (of_another) {
          const at::Tensor own = at::ones({1}).set_requires_grad(true);
          co_await ctx.backward(own.sum(), {.then = then});
        }
      });
      std::atomic<bool> finished = false;
      const auto finishes = [&]() -> asio::awaitable<void> {
        co_await sgd.finish();
        finished = true;
      };
      auto finish = me.spawn(finishes());
      co_await me.peer(1).call<&weft::autograd::detail::heard>();
      co_await me.peer(1).call<&weft::autograd::detail::heard>();
      CHECK_FALSE(finished);
      pool_goes_on = true;
      pool_goes_on.notify_all();
      co_await std::move(finish);
      const at::Tensor gradient = input().t().matmul(at::ones({2, 3}));
      CHECK(at::allclose((co_await weights[0].to_here()).detach(),
                         (start_of(1) - gradient * 2).detach()));
    });
  }
}

TEST_CASE("optim riding: a step that is named twice runs once") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1), unused = me.peer(2).make<layer>(2);
    const std::vector weights{there.remote<&layer::weight>(), unused.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    auto then = sgd.step_at_end();
    for (const auto& again : sgd.step_at_end()) then.push_back(again);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&layer::forward>(input());
      co_await ctx.backward(y.sum(), {.then = then});
    });
    co_await sgd.finish();
    const at::Tensor gradient = input().t().matmul(at::ones({2, 3}));
    CHECK(
        at::allclose((co_await weights[0].to_here()).detach(), (start_of(1) - gradient).detach()));
  });
}

TEST_CASE("optim riding: what a step throws is heard by who asks, once") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<layer>(1);
    const std::vector weights{there.remote<&layer::weight>()};
    const auto sgd = co_await distributed<SGD>::create(me, weights, SGDOptions(1));
    co_await there.call<&layer::replace_by_double>();
    const auto pass = [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&layer::forward>(input().to(at::kDouble));
      co_await ctx.backward(y.sum(), {.then = sgd.step_at_end()});
    };
    co_await weft::autograd::with_context(me, pass);
    const auto e = co_await thrown_by(sgd.finish());
    CAPTURE(e.message());
    CHECK(e);
    CHECK(says(e, "make a new optimizer"));
    co_await sgd.finish();
  });
}

}  // namespace optim_tests
