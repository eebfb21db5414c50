// SPDX-License-Identifier: BSL-1.0
// Whole programs from the papers of PyTorch's RPC, line by line: the end-to-end example of its note
// on distributed autograd, and Listing 1 of "PyTorch RPC" (MLSys 2023). Both in both modes.
#include "layers.hpp"
#include <weft/autograd/service.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/optim/module.hpp>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

namespace optim_tests {

using torch::optim::SGD;
using torch::optim::SGDOptions;
using weft::rref;
using weft::autograd::mode;

/// The tensor of the note, but known to the test.
at::Tensor random_tensor(std::int64_t seed) { return start_of(static_cast<int>(seed)); }

asio::awaitable<void> run_process(worker& me, mode how) {
  const std::uint32_t dst_rank = (me.rank() + 1) % me.world_size();
  const auto dst = me.peer(dst_rank);
  const std::int64_t seed = 10 * dst_rank;
  co_await weft::autograd::with_context(
      me,
      [&](context ctx) -> asio::awaitable<void> {
        // Forward pass (create references on remote nodes).
        const rref<at::Tensor> rref1 = dst.remote<&random_tensor>(seed);
        const rref<at::Tensor> rref2 = dst.remote<&random_tensor>(seed + 1);
        const at::Tensor first = co_await rref1.to_here(), second = co_await rref2.to_here();
        const at::Tensor loss = first + second;

        // Backward pass (run distributed autograd).
        co_await ctx.backward(loss.sum());

        // Build DistributedOptimizer.
        const auto dist_optim = co_await weft::optim::distributed<SGD>::create(
            me, std::vector{rref1, rref2}, SGDOptions(0.05));

        // Run the distributed optimizer step.
        co_await dist_optim.step(ctx);

        for (const auto& [ref, of] : {std::pair(rref1, seed), std::pair(rref2, seed + 1)}) {
          const at::Tensor now = co_await ref.to_here();
          const at::Tensor before = random_tensor(of);
          CHECK(at::equal(now.detach(), (before - 0.05 * at::ones({3, 3})).detach()));
        }
      },
      {.mode = how});
}

TEST_CASE("optim note: the end-to-end example, in which every rank drives its neighbour") {
  for (const mode how : {mode::smart, mode::fast}) {
    for (const std::uint32_t world : {2u, 3u}) {
      workers::life all(world, over::tcp, with_pool(with_io_threads(0)));
      for (const auto& end : all.run([&](worker& me) { return run_process(me, how); })) {
        CAPTURE(end.message());
        CHECK_FALSE(end);
      }
    }
  }
}

class Layer : public torch::nn::Module {
 public:
  Layer() : net_(torch::nn::Linear(20, 20), torch::nn::ReLU()) {
    register_module("net", net_);
    const at::NoGradGuard off;  // the same in each process
    std::int64_t seed = 0;
    for (at::Tensor& p : parameters()) p.copy_(at::arange(p.numel()).add(++seed).sin().view_as(p));
  }
  at::Tensor apply(const at::Tensor& x) { return net_->forward(x); }
  asio::awaitable<at::Tensor> forward(rref<at::Tensor> rx) {
    const at::Tensor x = co_await rx.to_here();
    co_return apply(x);
  }

 private:
  torch::nn::Sequential net_;
};

class Model {
 public:
  explicit Model(worker& me) : rl1(me.peer(1).make<Layer>()), rl2(me.peer(2).make<Layer>()) {}
  rref<at::Tensor> forward(rref<at::Tensor> ri) const {
    const rref<at::Tensor> rx = rl1.remote<&Layer::forward>(ri);
    return rl2.remote<&Layer::forward>(rx);
  }

  rref<Layer> rl1, rl2;
};

asio::awaitable<std::vector<rref<at::Tensor>>> param_rrefs(const Model& m) {
  std::vector<rref<at::Tensor>> all = co_await weft::optim::parameters(m.rl1);
  for (auto& p : co_await weft::optim::parameters(m.rl2)) all.push_back(std::move(p));
  co_return all;
}

at::Tensor batch_of(int step) { return at::arange(80).add(step).cos().reshape({4, 20}); }

TEST_CASE("optim note: Listing 1: two layers, references in and out, trained as in one process") {
  constexpr int steps = 3;
  Layer first, second;
  {
    std::vector<at::Tensor> all = first.parameters();
    for (const at::Tensor& p : second.parameters()) all.push_back(p);
    SGD opt(all, SGDOptions(0.05));
    for (int i = 0; i < steps; ++i) {
      opt.zero_grad();
      second.apply(first.apply(batch_of(i))).sum().backward();
      opt.step();
    }
  }
  for (const mode how : {mode::smart, mode::fast}) {
    run_workers(
        3, over::tcp, with_io_threads(0), [&](workers&, worker& me) -> asio::awaitable<void> {
          const Model m(me);
          const auto params = co_await param_rrefs(m);
          const auto opt =
              co_await weft::optim::distributed<SGD>::create(me, params, SGDOptions(0.05));
          for (int i = 0; i < steps; ++i) {
            co_await weft::autograd::with_context(me,
                                                  [&](context ctx) -> asio::awaitable<void> {
                                                    const auto ri = me.share(batch_of(i));
                                                    const at::Tensor loss =
                                                        (co_await m.forward(ri).to_here()).sum();
                                                    co_await ctx.backward(loss);
                                                    co_await opt.step(ctx);
                                                  },
                                                  {.mode = how});
          }
          std::vector<at::Tensor> expected = first.parameters();
          for (const at::Tensor& p : second.parameters()) expected.push_back(p);
          REQUIRE(params.size() == expected.size());
          for (std::size_t i = 0; i < params.size(); ++i) {
            CAPTURE(i);
            CHECK(at::equal((co_await params[i].to_here()).detach(), expected[i].detach()));
          }
        });
  }
}

}  // namespace optim_tests
