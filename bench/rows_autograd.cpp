// SPDX-License-Identifier: BSL-1.0
#include "peers/local.hpp"
#include "peers/raw.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"
#include <weft/optim/distributed.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

struct linear {
  at::Tensor weight = (at::randn({local::width, local::width}) * 0.125).set_requires_grad(true);
  at::Tensor bias = at::zeros({local::width}).set_requires_grad(true);

  at::Tensor forward(at::Tensor x) { return at::linear(x, weight, bias); }
};

std::vector<weft::rref<at::Tensor>> parameters(weft::worker& me, linear& layer) {
  return weft::optim::share(me, {layer.weight, layer.bias});
}

}  // namespace served

namespace {

using optimizer = weft::optim::distributed<torch::optim::SGD>;

/// Steps; what is timed is all of each, or its backward pass.
asio::awaitable<void> train(weft::worker& me, figures& out, bool backward_alone) {
  at::manual_seed(1);
  served::linear here;
  const auto there = me.peer(callee_rank).make<served::linear>();
  auto all = co_await there.call<&served::parameters>();
  for (auto& p : weft::optim::share(me, {here.weight, here.bias})) all.push_back(p);
  const auto descent =
      co_await optimizer::create(me, std::move(all), torch::optim::SGDOptions(local::rate));
  const auto x = at::randn({local::batch, local::width});
  const auto y = at::randn({local::batch, local::width});

  double last = 0;
  pace times(std::chrono::milliseconds(800));
  while (times.more()) {
    times.begin();
    co_await weft::autograd::with_context(
        me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
          const auto hidden = co_await there.call<&served::linear::forward>(here.forward(x));
          const auto loss = at::mse_loss(hidden, y);
          if (backward_alone) times.begin();
          co_await ctx.backward(loss);
          if (backward_alone) times.end();
          co_await descent.step(ctx);
          last = loss.item<double>();
        });
    if (!backward_alone) times.end();
  }
  if (!std::isfinite(last)) throw std::runtime_error("the model diverged");
  out = times.latency();
}

asio::awaitable<void> step(weft::worker& me, figures& out) { return train(me, out, false); }
asio::awaitable<void> backward(weft::worker& me, figures& out) { return train(me, out, true); }

}  // namespace

/// What a step would take at best: the local one, and three round trips of so many bytes (forward,
/// backward, optimizer).
figures local_and_three_trips(raw::medium over) {
  constexpr std::size_t bytes = local::batch * local::width * sizeof(float);
  const figures trips = raw::echo(over, bytes, placement::core_each);
  figures out = local::step();
  out["p50"] += 3 * trips.at("p50");
  return out;
}

void add_autograd_rows(std::vector<row>& rows) {
  const auto alone =
      make_run({.name = "local step", .where = placement::two_cores, .measure = local::step});
  const auto alone_back = make_run(
      {.name = "local backward", .where = placement::two_cores, .measure = local::backward});
  std::map<link_kind, run_ptr> with_trips;
  for (const auto over : {link_kind::unix_socket, link_kind::tcp}) {
    const auto medium = over == link_kind::tcp ? raw::medium::tcp : raw::medium::unix_socket;
    with_trips[over] = make_run({.name = "3 raw + local " + name_of(over),
                                 .where = placement::core_each,
                                 .measure = [=] { return local_and_three_trips(medium); }});
  }
  const auto add = [&](const std::string& name, link_kind over, threads_of_links io_threads,
                       decltype(step)* what = step) {
    // A process has a core of its own; the two workers of one process have both.
    const auto where = over == link_kind::inproc ? placement::two_cores : placement::core_each;
    const auto weft = weft_run(name, over, where, io_threads, what);
    const auto& local = what == step ? alone : alone_back;
    row one{name, "ms", {{"weft", weft, "p50", 1e-3}, {"local", local, "p50", 1e-3}}};
    if (what == step && over != link_kind::inproc) {
      one.subjects.push_back({"3 raw + local", with_trips.at(over), "p50", 1e-3});
    }
    rows.push_back(std::move(one));
  };
  for (const auto over : {link_kind::inproc, link_kind::unix_socket, link_kind::tcp}) {
    add("autograd.step." + name_of(over), over, by_default);
  }
  for (const unsigned n : {0u, 1u}) {
    add("autograd.step.tcp.io" + std::to_string(n), link_kind::tcp, n);
  }
  for (const auto over : {link_kind::inproc, link_kind::unix_socket, link_kind::tcp}) {
    add("autograd.backward." + name_of(over), over, by_default, backward);
  }
}

}  // namespace bench
