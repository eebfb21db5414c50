// SPDX-License-Identifier: BSL-1.0
// Worlds with gradients that are led to one moment which random programs seldom meet.
#include <weft/sim.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>
#include <sim/calls.hpp>
#include <string>

namespace sim_gradient_moments {

using namespace std::chrono_literals;

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

TEST_CASE("moments: who loses the initiator before the outcome of its pass shows no gradients") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    weight = at::full({3}, 2.0).set_requires_grad(true);
    bool looked = false;
    weft::sim::settings how;
    how.worker.on_loss = weft::loss_policy::go_on();
    how.worker.lost_after = 1s;
    how.worker.waiting = 0s;
    how.worker.io_threads = static_cast<unsigned>(seed % 3);
    how.wires.jitter = 1ms;
    weft::sim::world w(seed, how, weft::sim::services());
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

}  // namespace sim_gradient_moments
