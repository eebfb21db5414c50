// SPDX-License-Identifier: BSL-1.0
// How many schedules of a small program a simulated world goes through in a second of one core.
#include "rows.hpp"
#include "samples.hpp"
#include <weft/sim.hpp>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <malloc.h>

namespace bench {
namespace simulated {

using namespace std::chrono_literals;

asio::awaitable<std::uint64_t> twice(std::uint64_t x) { co_return 2 * x; }

class layer {
 public:
  explicit layer(double value) : weight_(at::full({2, 1}, value).set_requires_grad(true)) {}
  at::Tensor forward(at::Tensor x) { return x.matmul(weight_); }

 private:
  at::Tensor weight_;
};

/// Ten calls of rank 0, to the two others in turn.
asio::awaitable<void> ten_calls(weft::worker& me) {
  for (std::uint32_t i = 0; i < 10; ++i) {
    if (co_await me.peer(1 + i % 2).call<&twice>(std::uint64_t{i}) != 2 * i) {
      throw std::runtime_error("another call's reply");
    }
  }
}
asio::awaitable<void> one_scenario(weft::worker& me) {
  if (me.rank() == 0) co_await ten_calls(me);
}
std::uint64_t scenarios = 0;
asio::awaitable<void> many_scenarios(weft::worker& me) {
  if (me.rank() != 0) co_return;
  // bounded: by who steps the world
  for (;; ++scenarios) co_await ten_calls(me);
}
asio::awaitable<void> one_backward(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const weft::rref<layer> first = me.peer(1).make<layer>(3.0);
  const weft::rref<layer> second = me.peer(2).make<layer>(5.0);
  const at::Tensor x = at::ones({1, 2}).set_requires_grad(true);
  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        const at::Tensor y = co_await first.call<&layer::forward>(x);
        const at::Tensor z = co_await second.call<&layer::forward>(at::cat({y, y}, 1));
        co_await ctx.backward(z.sum());
        const auto gradients = co_await ctx.gradients();
        if (!at::equal(gradients.find(x), at::full({1, 2}, 30.0))) {
          throw std::runtime_error("a wrong gradient");
        }
      });
}

weft::sim::settings jittery() {
  weft::sim::settings how;
  how.workers = 3;
  how.wires.jitter = 2ms;
  return how;
}

/// Worlds of that program, from birth to the last byte.
figures births(asio::awaitable<void> (*main_)(weft::worker&), bool with_services) {
  at::set_num_threads(1);
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t seed = 0;
  double seconds = 0;
  do {
    weft::sim::world w(seed++, jittery(),
                       with_services ? weft::sim::services() : weft::engine::service_makers{});
    w.start(main_);
    if (!w.run(1min)) throw std::runtime_error(w.waits());
    for (std::uint32_t r = 0; r < w.size(); ++r) {
      if (w.failed(r)) throw std::runtime_error(w.ended(r).message());
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (seconds < 2);
  return {{"rate", static_cast<double>(seed) / seconds}};
}

/// One world whose workers have met: the same ten calls, over and over, by ever other delays.
figures met() {
  const auto begin = std::chrono::steady_clock::now();
  scenarios = 0;
  weft::sim::world w(1, jittery());
  w.start(&many_scenarios);
  double seconds = 0;
  do {
    static_cast<void>(w.run(1s));
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (seconds < 2);
  return {{"rate", static_cast<double>(scenarios) / seconds}};
}

/// Workers that join, call ten others each, and end: seconds of one core, and the MiB that they
/// take at most.
asio::awaitable<void> ten_others(weft::worker& me) {
  for (std::uint32_t i = 1; i <= 10; ++i) {
    const std::uint32_t to = (me.rank() + i * i) % me.world_size();
    if (co_await me.peer(to).call<&twice>(std::uint64_t{i}) != 2 * i) {
      throw std::runtime_error("another call's reply");
    }
  }
}
figures many_workers(std::uint32_t workers) {
  const std::size_t before = mallinfo2().uordblks;
  const auto begin = std::chrono::steady_clock::now();
  weft::sim::settings how;
  how.workers = workers;
  weft::sim::world w(1, how);
  w.start(&ten_others);
  std::size_t most = 0;
  const auto look = [&] {
    if (w.steps() % 1024 == 0) most = std::max(most, mallinfo2().uordblks - before);
    return false;
  };
  if (!w.run(1min, look)) throw std::runtime_error(w.waits());
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    if (w.failed(r)) throw std::runtime_error(w.ended(r).message());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {{"seconds", took.count()}, {"memory", static_cast<double>(most) / (1u << 20)}};
}

}  // namespace simulated

void add_sim_rows(std::vector<row>& rows) {
  const auto add = [&rows](const char* name, std::function<figures()> measure) {
    const run_ptr source =
        make_run({.name = std::string("weft ") + name, .measure = std::move(measure)});
    rows.push_back({name, "1/s", {{"weft", source, "rate"}}});
  };
  add("sim.birth", [] { return simulated::births(&simulated::one_scenario, false); });
  add("sim.met", &simulated::met);
  add("sim.backward", [] { return simulated::births(&simulated::one_backward, true); });
  for (const std::uint32_t workers : {100u, 1000u}) {
    const std::string name = "call.simulated." + std::to_string(workers) + "_workers";
    const run_ptr source = make_run({.name = "weft " + name, .measure = [workers] {
                                       return simulated::many_workers(workers);
                                     }});
    rows.push_back({name, "s", {{"weft", source, "seconds"}}});
    rows.push_back({name + ".memory", "MiB", {{"weft", source, "memory"}}});
  }
}

}  // namespace bench
