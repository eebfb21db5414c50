// SPDX-License-Identifier: BSL-1.0
// A program with tensors and gradients in simulated worlds, by weft/sim.hpp as users include it.
#include <weft/sim.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstdint>
#include <string>

namespace sim_gradients {

using namespace std::chrono_literals;
using weft::testing::rounds;

class layer {
 public:
  explicit layer(double value) : weight_(at::full({2, 1}, value).set_requires_grad(true)) {}
  at::Tensor forward(at::Tensor x) { return x.matmul(weight_); }

 private:
  at::Tensor weight_;
};

/// What the gradient of x must be: through worker 1's weight 3 and worker 2's weight 5.
bool right = false;
int passes = 0;

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const weft::rref<layer> first = me.peer(1).make<layer>(3.0);
  const weft::rref<layer> second = me.peer(2).make<layer>(5.0);
  const at::Tensor x = at::ones({1, 2}).set_requires_grad(true);
  for (int i = 0; i < 2; ++i) {
    co_await weft::autograd::with_context(
        me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await first.call<&layer::forward>(x);
          const at::Tensor z = co_await second.call<&layer::forward>(at::cat({y, y}, 1));
          co_await ctx.backward(z.sum());
          const auto gradients = co_await ctx.gradients();
          right = at::equal(gradients.find(x), at::full({1, 2}, 30.0));
          ++passes;
        });
  }
}

TEST_CASE("sim gradients: a backward pass through three workers is right on every schedule") {
  at::set_num_threads(1);
  for (std::uint64_t seed = 0; seed < rounds(6, 60); ++seed) {
    CAPTURE(seed);
    std::uint64_t hash = 0;
    for (int again = 0; again < 2; ++again) {
      right = false;
      passes = 0;
      weft::sim::settings how;
      how.workers = 3;
      if (seed % 3 != 0) how.worker.io_threads = static_cast<unsigned>(seed % 3 - 1);
      how.whole_frames = seed % 2 == 0;
      how.wires.jitter = 2ms;
      weft::sim::world w(seed, how, weft::sim::services());
      w.start(&main_);
      REQUIRE(w.run(1min));
      for (std::uint32_t r = 0; r < 3; ++r) {
        INFO(w.ended(r).message());
        CHECK_FALSE(w.ended(r));
      }
      CHECK(right);
      CHECK(passes == 2);
      if (again == 1) CHECK(w.hash() == hash);
      hash = w.hash();
    }
  }
}

TEST_CASE("sim gradients: a worker that crashes in a backward pass leaves a typed error") {
  at::set_num_threads(1);
  int failed = 0;
  for (std::uint64_t seed = 0; seed < rounds(6, 60); ++seed) {
    CAPTURE(seed);
    right = false;
    passes = 0;
    weft::sim::settings how;
    how.workers = 3;
    how.worker.lost_after = 1s;
    how.worker.rendezvous_deadline = 5s;
    weft::sim::world w(seed, how, weft::sim::services());
    w.start(&main_);
    static_cast<void>(w.run(std::chrono::microseconds(150 + 20 * seed)));
    if (!w.over()) w.crash(2, seed % 2 == 0);
    REQUIRE(w.run(1min));
    CHECK((passes == 0 || right));
    if (!w.failed(0)) continue;
    ++failed;
    CHECK(w.ended(0).detail().peer == "worker2");
  }
  CHECK(failed > rounds(1, 20));
}

}  // namespace sim_gradients
