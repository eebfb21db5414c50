// SPDX-License-Identifier: BSL-1.0
// Weights that live at a server, and three trainers with data of their own, in two ways: all step
// together with the mean of their gradients, or each steps when it can, and forward passes read
// while others step (after Niu, Recht, Re, Wright: Hogwild!, NIPS 2011; here the writes of two
// steps take turns). Both find the line that the data are from. Prints
//
//   synchronous: y = 2.00 x + 1.00 after 200 steps
//   Hogwild: y = 2.00 x + 1.00 after 600 steps
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using torch::optim::SGD, torch::optim::SGDOptions;

constexpr double rate = 0.3;
constexpr int steps = 200;                        // of each trainer
constexpr weft::within no_limit(weft::no_limit);  // a call has 60 s, unless it is told otherwise

/// A trainer's own data: x and 1 in each row, and y. Shapes [16, 2], [16, 1].
struct data {
  explicit data(std::uint32_t trainer) {
    const at::Tensor x = at::linspace(-1, 1, 16).add(0.1 * trainer).unsqueeze(1);
    in = at::cat({x, at::ones_like(x)}, 1);
    out = 2 * x + 1;
  }
  at::Tensor in, out;
};

// ── synchronous: gradients travel, and the weights come back ──

/// Coroutines on one thread: no lock. All trainers have as many samples, else the mean would be a
/// weighted one. Who gives up while it waits has been counted: then this object is of no use.
class averaging_server {
 public:
  explicit averaging_server(int trainers) : trainers_(trainers) {}
  /// The weights after a step with the mean of all trainers' gradients. Shape [2, 1] each.
  asio::awaitable<at::Tensor> step(at::Tensor gradient) {
    sum_ += gradient;
    const auto together = together_;
    if (++given_ == trainers_) {
      weights_ = weights_ - rate / trainers_ * sum_;  // a new one: the old is still on its way
      sum_ = at::zeros({2, 1});
      given_ = 0;
      together_ = weft::make_intrusive<weft::event>();
      together->set();
    } else {
      co_await weft::event::wait(together);
    }
    co_return weights_;
  }

 private:
  int trainers_, given_ = 0;
  at::Tensor weights_ = at::zeros({2, 1}), sum_ = at::zeros({2, 1});
  weft::intrusive_ptr<weft::event> together_ = weft::make_intrusive<weft::event>();
};
asio::awaitable<at::Tensor> train_together(weft::worker& me, weft::rref<averaging_server> server) {
  const data mine(me.rank());
  at::Tensor weights = at::zeros({2, 1});
  for (int i = 0; i < steps; ++i) {
    const at::Tensor wrong = mine.in.matmul(weights) - mine.out;
    weights = co_await server.call<&averaging_server::step>(
        mine.in.t().matmul(wrong).mul(2.0 / static_cast<double>(wrong.numel())));
  }
  co_return weights;
}

// ── Hogwild: the forward pass is a call, and its gradients stay at the server ──

class model {
 public:
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weights_); }
  std::vector<weft::rref<at::Tensor>> parameters(weft::worker& me) { return {me.share(weights_)}; }
  at::Tensor weights() const { return weights_.detach().clone(); }

 private:
  at::Tensor weights_ = at::zeros({2, 1}).set_requires_grad(true);
};
asio::awaitable<void> train_alone(weft::worker& me, weft::rref<model> there,
                                  weft::optim::distributed<SGD> sgd) {
  const data mine(me.rank());
  for (int i = 0; i < steps; ++i) {
    co_await weft::autograd::with_context(
        me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await there.call<&model::forward>(mine.in);
          co_await ctx.backward((y - mine.out).pow(2).mean());
          co_await sgd.step(ctx);
        });
  }
}

void say(const char* how, const at::Tensor& w, int made) {
  std::printf("%s: y = %.2f x + %.2f after %d steps\n", how, w[0].item<double>(),
              w[1].item<double>(), made);
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const std::vector<weft::peer> trainers = me.peers("trainer");
  const int n = static_cast<int>(trainers.size());

  const auto averaging = me.make<averaging_server>(n);
  std::vector<asio::awaitable<at::Tensor>> together;
  for (const weft::peer& p : trainers) {
    together.push_back(p.call<&train_together>(averaging, no_limit));
  }
  const auto found = co_await weft::gather(std::move(together));
  say("synchronous", found.front(), steps);

  const auto there = me.make<model>();
  const auto parameters = co_await there.call<&model::parameters>();
  const auto sgd = co_await weft::optim::distributed<SGD>::create(
      me, parameters, SGDOptions(rate / n));  // n steps for one above
  std::vector<asio::awaitable<void>> alone;
  for (const weft::peer& p : trainers) alone.push_back(p.call<&train_alone>(there, sgd, no_limit));
  co_await weft::gather(std::move(alone));
  say("Hogwild", co_await there.call<&model::weights>(), steps * n);
}

int main() {
  weft::options o{.workers = 4};
  o.role = [](std::uint32_t rank, std::uint32_t) {
    return std::string(rank == 0 ? "server" : "trainer");
  };
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
