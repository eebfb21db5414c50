// SPDX-License-Identifier: BSL-1.0
// What a distributed optimizer says when something is wrong.
#include "layers.hpp"
#include "stubborn.hpp"
#include <weft/optim/distributed.hpp>

#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace optim_tests {
using adam = weft::optim::distributed<torch::optim::Adam>;
using stubborns = weft::optim::distributed<stubborn>;

at::Tensor no_tensor() { throw std::runtime_error("no weights today"); }
at::Tensor undefined_tensor() { return {}; }
at::Tensor computed_tensor() { return start_of(1) * 2; }

namespace {

float first_of(int seed) { return start_of(seed).flatten()[0].item<float>(); }

TEST_CASE(
    "optim: an error of an optimizer's constructor reaches create, from all workers at once") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    auto a = me.peer(1).make<layer>(1);
    auto b = me.peer(2).make<layer>(2);
    const weft::error e = co_await thrown_by(
        adam::create(me, {a.remote<&layer::weight>(), b.remote<&layer::weight>()},
                     torch::optim::AdamOptions(-1)));
    INFO(e.message());
    CHECK(e == weft::errc::remote_exception);
    CHECK(e.detail().peer == "worker1");
    CHECK(e.detail().function == "weft::optim::create/Adam");
    CHECK(says(e, "Invalid learning rate: -1 (and 1 more failed"));
    CHECK(says(e, "worker 'worker2': remote exception: Invalid learning rate: -1"));
    CHECK_FALSE(says(e, "frame #"));  // libtorch's stack is no cause
  });
}

TEST_CASE("optim: parameters that cannot be optimized are refused by create") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const torch::optim::AdamOptions options(0.1);
    const auto refusal = [&](std::vector<weft::rref<at::Tensor>> parameters) {
      return thrown_by(adam::create(me, std::move(parameters), options));
    };
    const auto p = me.peer(1);
    const std::vector<weft::rref<at::Tensor>> nothing;
    CHECK(co_await refusal(nothing) == weft::errc::invalid_argument);
    const std::vector<weft::rref<at::Tensor>> empty(1);
    const weft::error e = co_await refusal(empty);
    CHECK(e == weft::errc::invalid_argument);
    CHECK(says(e, "parameter 0 is an empty reference"));
    CHECK(says(co_await refusal({p.remote<&computed_tensor>()}), "is not a leaf"));
    CHECK(says(co_await refusal({p.remote<&undefined_tensor>()}), "is an undefined tensor"));
    CHECK(says(co_await refusal({p.remote<&no_tensor>()}), "no weights today"));
    auto l = p.make<layer>(1);
    CHECK(says(co_await refusal({l.remote<&layer::weight>(), l.remote<&layer::weight>()}),
               "was given twice"));
  });
}

TEST_CASE("optim: errors of a step from all workers are one error, and the others have stepped") {
  run_workers(4, [](workers&, worker& me) -> asio::awaitable<void> {
    std::vector<weft::rref<layer>> layers;
    std::vector<weft::rref<at::Tensor>> weights;
    for (int rank = 1; rank < 4; ++rank) {
      layers.push_back(me.peer(rank).make<layer>(rank));
      weights.push_back(layers.back().remote<&layer::weight>());
    }
    auto optimizer =
        co_await stubborns::create(me, weights, stubborn_options({first_of(1), first_of(3)}));
    weft::error e;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor out = input();
      for (auto& l : layers) out = co_await l.call<&layer::forward>(out);
      co_await ctx.backward(out.sum());
      e = co_await thrown_by(optimizer.step(ctx));
    });
    INFO(e.message());
    CHECK(e == weft::errc::remote_exception);
    CHECK(e.detail().peer == "worker1");
    CHECK(e.ran() == weft::call_progress::executed);
    CHECK(says(e, "worker 'worker1': remote exception: it will not (and 1 more failed"));
    CHECK(says(e, "worker 'worker3': remote exception: it will not"));
    CHECK_FALSE(says(e, "worker2"));
    CHECK(at::equal(co_await weights[0].to_here(), start_of(1)));
    CHECK(at::equal(co_await weights[1].to_here(), start_of(2) + 1));
    CHECK(at::equal(co_await weights[2].to_here(), start_of(3)));
  });
}

TEST_CASE("optim: a step in a released context is refused") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    auto optimizer =
        co_await adam::create(me, {l.remote<&layer::weight>()}, torch::optim::AdamOptions(0.1));
    std::optional<context> kept;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      kept = ctx;
      co_return;
    });
    const weft::error e = co_await thrown_by(optimizer.step(*kept));
    CHECK(e == weft::errc::autograd_context_gone);
    kept.reset();
  });
}

TEST_CASE("optim: a step belongs to the context it is given, wherever it is awaited") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    auto optimizer = co_await weft::optim::distributed<torch::optim::SGD>::create(
        me, {weight}, torch::optim::SGDOptions(1.0));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await l.call<&layer::forward>(at::ones({1, 3}));
      co_await ctx.backward(out.sum());
      co_await weft::with_scope(weft::detail::context_of(me),
                                weft::make_intrusive<weft::call_scope>(), optimizer.step(ctx));
    });
    CHECK(at::equal(co_await weight.to_here(), start_of(1) - 1));
  });
}

TEST_CASE("optim: whatever an optimizer throws is the step's error, and the next one works") {
  struct odd_error {};
  const std::vector<std::pair<std::function<void()>, const char*>> faults = {
      {[] { throw std::bad_alloc(); }, "bad_alloc"},
      {[] { TORCH_CHECK(false, "libtorch will not"); }, "libtorch will not"},
      {[] { throw odd_error(); }, "not a std::exception"}};
  run_workers(
      2, over::tcp, with_io_threads(1), [&](workers& all, worker& me) -> asio::awaitable<void> {
        auto l = me.peer(1).make<layer>(1);
        const auto weight = l.remote<&layer::weight>();
        auto optimizer = co_await stubborns::create(me, {weight}, stubborn_options{});
        const auto step = [&]() -> asio::awaitable<weft::error> {
          co_return co_await weft::autograd::with_context(
              me, [&](context ctx) -> asio::awaitable<weft::error> {
                const at::Tensor out = co_await l.call<&layer::forward>(input());
                co_await ctx.backward(out.sum());
                co_return co_await thrown_by(optimizer.step(ctx));
              });
        };
        int steps = 0;
        for (const auto& [fault, words] : faults) {
          stubborn::fault = fault;
          const weft::error e = co_await step();
          INFO(e.message());
          CHECK(e == (std::string_view(words) == "bad_alloc" ? weft::errc::resource_exhausted
                                                             : weft::errc::remote_exception));
          CHECK(says(e, words));
          stubborn::fault = nullptr;
          CHECK_FALSE(co_await step());
          ++steps;
          CHECK(at::equal(co_await weight.to_here(), start_of(1) + steps));
        }
        CHECK(co_await eventually(
            [&] { return all.at(1).use<weft::autograd_service>().contexts() == 0; }));
      });
}

TEST_CASE("optim: how far a step got is what all owners together did") {
  using weft::call_progress;
  using weft::optim::detail::ran_together;
  const auto failed = [](std::vector<call_progress> each) {
    std::vector<weft::error> out;
    for (const call_progress e : each) out.emplace_back(weft::errc::timed_out, "late", e);
    return out;
  };
  constexpr auto not_sent = call_progress::not_sent, not_executed = call_progress::not_executed,
                 maybe = call_progress::maybe_executed, executed = call_progress::executed;
  CHECK(ran_together(failed({not_sent}), 1) == not_sent);
  CHECK(ran_together(failed({not_sent, not_sent}), 2) == not_sent);
  CHECK(ran_together(failed({not_sent}), 2) == maybe);  // the other has stepped
  CHECK(ran_together(failed({not_sent, not_executed}), 2) == not_executed);
  CHECK(ran_together(failed({not_sent, executed}), 2) == maybe);
  CHECK(ran_together(failed({not_executed, maybe}), 2) == maybe);
  CHECK(ran_together(failed({executed}), 2) == executed);
  CHECK(ran_together(failed({executed, executed}), 2) == executed);
}

TEST_CASE("optim: a step without any time left is refused, and nothing is done") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    const auto weight = l.remote<&layer::weight>();
    auto optimizer = co_await stubborns::create(me, {weight}, stubborn_options{});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await l.call<&layer::forward>(input());
      co_await ctx.backward(out.sum());
      for (const weft::within none :
           {weft::within(weft::duration::min()), weft::within(weft::duration())}) {
        const weft::error e = co_await thrown_by(optimizer.step(ctx, none));
        CHECK(e == weft::errc::timed_out);
        CHECK(e.ran() == weft::call_progress::not_sent);
      }
    });
    CHECK(at::equal(co_await weight.to_here(), start_of(1)));
  });
}

TEST_CASE("optim: a step that takes too long") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    auto l = me.peer(1).make<layer>(1);
    auto optimizer =
        co_await stubborns::create(me, {l.remote<&layer::weight>()}, stubborn_options{});
    stubborn::door().close();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor out = co_await l.call<&layer::forward>(input());
      co_await ctx.backward(out.sum());
      const weft::error e =
          co_await thrown_by(optimizer.step(ctx, weft::within(std::chrono::milliseconds(20))));
      CHECK(e == weft::errc::timed_out);
      stubborn::door().open();
    });
  });
}

}  // namespace
}  // namespace optim_tests
