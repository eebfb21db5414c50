// SPDX-License-Identifier: BSL-1.0
// Worlds with gradients that are led to one moment which random programs seldom meet.
#include <weft/optim/distributed.hpp>
#include <weft/sim.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstdint>
#include <sim/calls.hpp>
#include <string>
#include <vector>

namespace sim_gradient_moments {

using namespace std::chrono_literals;
using weft::testing::rounds;

weft::sim::world* there = nullptr;
at::Tensor weight;  // worker 0's

at::Tensor scaled(const at::Tensor& x) { return x * weight; }
asio::awaitable<at::Tensor> gradient(weft::worker& me) {
  co_return (co_await weft::autograd::this_context(me).gradients()).find(weight);
}
/// Is cut off from worker 0 when it knows that the pass has succeeded.
asio::awaitable<void> passes_and_is_cut_off(weft::worker& me, at::Tensor loss) {
  co_await weft::autograd::this_context(me).backward(loss.sum());
  there->wires().cut(2, 0);
}

/// Three workers that survive losses, and know of them after a second.
weft::sim::settings three(std::uint64_t seed) {
  weft::sim::settings how;
  how.worker.on_loss = weft::loss_policy::go_on();
  how.worker.lost_after = 1s;
  how.worker.waiting = 0s;
  if (seed % 3 != 0) how.worker.io_threads = static_cast<unsigned>(seed % 3 - 1);
  how.wires.jitter = 1ms;
  return how;
}

TEST_CASE("moments: who loses the initiator before the outcome of its pass shows no gradients") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < rounds(5, 30); ++seed) {
    CAPTURE(seed);
    weight = at::full({3}, 2.0).set_requires_grad(true);
    bool looked = false;
    weft::sim::world w(seed, three(seed), weft::sim::services());
    there = &w;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) co_return co_await weft::testing::sleep_for(me, 20s);
      const at::Tensor x = at::ones({3}).set_requires_grad(true);
      co_await weft::autograd::with_context(
          me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
            const at::Tensor y = co_await me.peer(0).call<&scaled>(x);
            co_await me.peer(2).call<&passes_and_is_cut_off>(y);
            CHECK(at::equal((co_await ctx.gradients()).find(x), at::full({3}, 2.0)));
            const auto got =
                co_await me.peer(0).call<&gradient>(weft::within(10s), weft::as_expected);
            REQUIRE_FALSE(got);
            INFO(got.error().message());
            CHECK(got.error().cause() == weft::errc::autograd_pass_aborted);
            CHECK(got.error().message().find("worker2") != std::string::npos);
            looked = true;
          });
    });
    CHECK(w.run(1min));
    CHECK(looked);
    weight = at::Tensor();
  }
}

weft::rref<at::Tensor> shared_weight(weft::worker& me) { return me.share(weight); }
at::Tensor weight_now() { return weight.detach().clone(); }

TEST_CASE("moments: a step waits for the outcome of a pass that its owner has not heard of yet") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < rounds(5, 30); ++seed) {
    CAPTURE(seed);
    weight = at::full({3}, 2.0).set_requires_grad(true);
    bool stepped = false;
    weft::sim::world w(seed, three(seed), weft::sim::services());
    there = &w;
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) co_return co_await weft::testing::sleep_for(me, 20s);
      std::vector<weft::rref<at::Tensor>> parameters;
      parameters.push_back(co_await me.peer(0).call<&shared_weight>());
      const auto sgd = co_await weft::optim::distributed<torch::optim::SGD>::create(
          me, parameters, torch::optim::SGDOptions(0.5));
      co_await weft::autograd::with_context(
          me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
            const at::Tensor y = co_await me.peer(0).call<&scaled>(at::ones({3}));
            co_await me.peer(2).call<&passes_and_is_cut_off>(y);
            auto step = me.spawn(sgd.step(ctx));
            co_await weft::testing::sleep_for(me, 300ms);
            CHECK_FALSE(step.ready());
            w.wires().heal(2, 0);
            co_await std::move(step);
          });
      const at::Tensor got = co_await me.peer(0).call<&weight_now>();
      CHECK(at::equal(got, at::full({3}, 1.5)));
      stepped = true;
    });
    CHECK(w.run(1min));
    CHECK(stepped);
    weight = at::Tensor();
  }
}

at::Tensor tripled(const at::Tensor& x) { return x * 3; }
asio::awaitable<at::Tensor> through_the_third(weft::worker& me, at::Tensor x) {
  co_return (co_await me.peer(2).call<&tripled>(x * 2));
}

TEST_CASE("moments: who began a pass hears of the loss of whom another worker drew in") {
  at::set_num_threads(1);
  int failed = 0;
  for (std::uint64_t seed = 0; seed < rounds(12, 120); ++seed) {
    CAPTURE(seed);
    bool ended = false;
    weft::sim::world w(seed, three(seed), weft::sim::services());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) co_return co_await weft::testing::sleep_for(me, 90s);
      co_await me.peer(2).call<&tripled>(at::ones({1}));  // there is a link to cut
      const at::Tensor x = at::ones({3}).set_requires_grad(true);
      co_await weft::autograd::with_context(
          me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
            const at::Tensor y = co_await me.peer(0).call<&through_the_third>(x);
            const auto begun = me.time().now();
            auto pass = me.spawn(ctx.backward(y.sum()));
            co_await weft::testing::sleep_for(me, std::chrono::microseconds(100) * (seed / 2));
            w.wires().cut(2, 1);
            if (seed % 2 == 0) w.wires().cut(1, 2);
            weft::error why;
            try {
              co_await std::move(pass);
            } catch (const weft::rpc_error& e) {
              why = e.error();
            }
            CHECK(me.time().now() - begun < 5s);  // not at its deadline
            if (why) {
              INFO(why.message());
              CHECK(why.message().find("worker2") != std::string::npos);
              ++failed;
            } else {
              CHECK(at::equal((co_await ctx.gradients()).find(x), at::full({3}, 6.0)));
            }
            ended = true;
          });
    });
    CHECK(w.run(5min));
    CHECK(ended);
  }
  CHECK(failed > rounds(1, 20));
}

TEST_CASE("moments: a pass that failed with its run adds nothing later") {
  at::set_num_threads(1);
  int failed = 0;
  for (std::uint64_t seed = 0; seed < rounds(40, 400); ++seed) {
    CAPTURE(seed);
    weight = at::full({3}, 2.0).set_requires_grad(true);
    weft::sim::settings how = three(seed);
    how.worker.on_loss = {};
    weft::sim::world w(seed, how, weft::sim::services());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() != 1) co_return co_await weft::testing::sleep_for(me, 10s);
      const at::Tensor x = at::ones({3}).set_requires_grad(true);
      co_await me.peer(2).call<&tripled>(x.detach());  // whose end is noticed at once
      co_await weft::testing::sleep_for(me, 100ms);    // all have met
      co_await weft::autograd::with_context(
          me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
            const at::Tensor y = co_await me.peer(0).call<&scaled>(x);
            auto pass = me.spawn(ctx.backward(y.sum()));
            w.crash(2);
            bool refused = false;
            try {
              co_await std::move(pass);
            } catch (const weft::rpc_error&) {
              refused = true;
            }
            const at::Tensor now = (co_await ctx.gradients()).find(x);
            // The run ends, which cancels this function.
            co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
            co_await weft::testing::sleep_for(me, 100ms);
            const at::Tensor later = (co_await ctx.gradients()).find(x);
            CHECK(now.defined() == later.defined());
            CHECK(refused != later.defined());
            if (refused) ++failed;
          });
    });
    CHECK(w.run(1min));
    weight = at::Tensor();
  }
  CHECK(failed > 0);
}

void take(const at::Tensor&) {}

TEST_CASE("moments: who dies in the middle of a tensor leaves none of its memory taken") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < rounds(5, 50); ++seed) {
    CAPTURE(seed);
    bool looked = false;
    weft::sim::settings how = three(seed);
    how.workers = 2;
    how.whole_frames = false;
    how.wires.buffer_bytes = 16u << 10;
    weft::sim::world w(seed, how, weft::sim::services());
    w.start([&](weft::worker& me) -> asio::awaitable<void> {
      if (me.rank() == 1) {
        try {
          co_await me.peer(0).call<&take>(at::ones({100'000}));
        } catch (const weft::rpc_error&) {  // it may hear of its own end
        }
        co_return;
      }
      const auto taken = [&] { return w.at(0).worker().link_to(1).count().budget_used; };
      for (int i = 0; i < 1000 && taken() == 0; ++i) co_await weft::testing::sleep_for(me, 1ms);
      REQUIRE(taken() > 400'000);
      w.crash(1);
      co_await weft::testing::sleep_for(me, 5s);
      CHECK(taken() == 0);
      looked = true;
    });
    CHECK(w.run(1min));
    CHECK(looked);
  }
}

}  // namespace sim_gradient_moments
