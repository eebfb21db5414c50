// SPDX-License-Identifier: BSL-1.0
// Parts of the forward pass that are computed again in backward, and passes inside of nodes.
#include "service_functions.hpp"
#include <weft/autograd/checkpoint.hpp>
#include <weft/autograd/service.hpp>

#include <ATen/ops/dropout.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

namespace autograd_tests {

using weft::autograd::checkpoint;
using weft::autograd::checkpoint_all;

/// A block with a parameter; counts how often it is computed.
class block {
 public:
  explicit block(int seed) : weight_(leaf(seed, {3, 3}, at::kDouble)) {}
  at::Tensor weight() { return weight_; }
  at::Tensor plain(const at::Tensor& x) {
    ++computed;
    return (x.matmul(weight_) * x).pow(2);
  }
  at::Tensor forward(const at::Tensor& x) {
    return checkpoint([this](const std::vector<at::Tensor>& in) { return plain(in[0]); }, {x});
  }
  static inline std::atomic<int> computed{0};

 private:
  at::Tensor weight_;
};

TEST_CASE("autograd checkpoint: results that have no gradients, anywhere among others") {
  workers_everywhere(1, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble);
    const auto function = [](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{in[0].argmax(), in[0] * 2, in[0].argmin(), in[0] * 3};
    };
    const auto here = checkpoint_all(function, {x});
    (here[1] + here[3]).sum().backward();
    CHECK(same(x.grad(), at::full({3, 3}, 5, at::kDouble)));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto all = checkpoint_all(function, {x});
      co_await ctx.backward(all[3].sum());
      CHECK(same((co_await ctx.gradients()).find(x), at::full({3, 3}, 3, at::kDouble)));
    });
  });
}

TEST_CASE("autograd checkpoint: many at once, in forward too, draw what they drew") {
  const auto draws = [](const std::vector<at::Tensor>& in) {
    return at::dropout(in[0], 0.5, true) * 2;
  };
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < 24; ++i) leaves.push_back(leaf(i, {64, 64}, at::kDouble));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 24; i += 4) {
        const at::Tensor y = checkpoint(draws, {leaves[i]});
        y.sum().backward();
        right += at::equal(leaves[i].grad() * leaves[i].detach(), y.detach()) ? 1 : 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(right == 24);
}

TEST_CASE("autograd checkpoint: random numbers that others drew meanwhile are noticed") {
  bool others = false;
  const auto draws = [&](const std::vector<at::Tensor>& in) {
    if (others) static_cast<void>(at::rand({3}));
    return at::dropout(in[0], 0.5, true) * 2;
  };
  const at::Tensor x = leaf(1, {64, 64}, at::kDouble);
  const at::Tensor y = checkpoint(draws, {x});
  others = true;
  CHECK_THROWS_WITH(y.sum().backward(), doctest::Contains("others drew some meanwhile"));
}

TEST_CASE("autograd checkpoint: passes for some inputs are refused, here and elsewhere") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble);
    block mine(2);
    CHECK_THROWS_WITH(torch::autograd::grad({mine.forward(x).sum()}, {x}),
                      doctest::Contains("cannot run in a pass for some inputs"));
    const auto there = me.peer(1).make<block>(3);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&block::forward>(x);
      const auto e = co_await thrown_by(
          [&]() -> asio::awaitable<void> { static_cast<void>(co_await ctx.grad(y.sum(), {x})); }());
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(says(e, "cannot run in a pass for some inputs"));
    });
  });
}

TEST_CASE("autograd checkpoint: many at once leave the random numbers as they were") {
  const auto draws = [](const std::vector<at::Tensor>& in) {
    return at::dropout(in[0], 0.5, true) * 2;
  };
  const auto state = [] { return weft::autograd::detail::random_numbers::state(); };
  std::vector<at::Tensor> leaves, results;
  for (int i = 0; i < 8; ++i) {
    leaves.push_back(leaf(i, {64, 64}, at::kDouble));
    results.push_back(checkpoint(draws, {leaves.back()}));
  }
  const at::Tensor before = state();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { results[i].sum().backward(); });
  }
  for (std::thread& t : threads) t.join();
  CHECK(at::equal(state(), before));
  for (int i = 0; i < 8; ++i) {  // 4 where it was kept, as in forward
    CAPTURE(i);
    CHECK(at::equal(leaves[i].grad() * leaves[i].detach(), results[i].detach()));
  }
}

TEST_CASE("autograd checkpoint: gradients of inputs and parameters, here and at another worker") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble), lx = twin(x);
    block first(2), second(3), mine(2);
    second.plain(first.plain(lx) + lx).sum().backward();
    const auto there = me.peer(1).make<block>(3);
    const auto weight = there.remote<&block::weight>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      block::computed = 0;
      const at::Tensor h = mine.forward(x) + x;
      const at::Tensor y = co_await there.call<&block::forward>(h);
      CHECK(block::computed == 2);
      co_await ctx.backward(y.sum(), {.retention = graph_retention::retain});
      CHECK(block::computed == 4);
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 2);
      CHECK(same(gradients.find(x), lx.grad()));
      CHECK(same(gradients.find(mine.weight()), first.weight().grad()));
      CHECK(same(co_await weight.call<&gradient_of>(), second.weight().grad()));
      CHECK_FALSE(mine.weight().grad().defined());

      co_await ctx.backward(y.sum());  // and once more
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad() * 2));
      const auto e = co_await thrown_by(ctx.backward(y.sum()));
      CAPTURE(e.message());
      CHECK(says(e, "second time"));
    });
    CHECK(co_await all_forgotten(all));
  });
}

at::Tensor dropped(const at::Tensor& x) {
  return checkpoint([](const std::vector<at::Tensor>& in) { return at::dropout(in[0], 0.5, true); },
                    {x});
}

TEST_CASE("autograd checkpoint: random numbers are the same again, and those of others go on") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = at::ones({64}).set_requires_grad(true);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&dropped>(x);
      at::manual_seed(7);
      const at::Tensor next = at::rand({3});
      at::manual_seed(7);
      co_await ctx.backward(y.sum());
      CHECK(at::equal(at::rand({3}), next));
      CHECK(same((co_await ctx.gradients()).find(x), y.detach()));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd checkpoint: in a pass of libtorch, gradients go where it puts them") {
  block one(2), other(2);
  const at::Tensor x = leaf(1, {3, 3}, at::kDouble), lx = twin(x);
  one.forward(x).sum().backward();
  other.plain(lx).sum().backward();
  CHECK(same(x.grad(), lx.grad()));
  CHECK(same(one.weight().grad(), other.weight().grad()));
}

TEST_CASE("autograd checkpoint: an input that was changed in place since is noticed") {
  block one(2);
  const at::Tensor x = leaf(1, {3, 3}, at::kDouble);
  at::Tensor h = x * 1;
  const at::Tensor y = one.forward(h).sum();
  h.mul_(2);
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("modified by an inplace operation"),
                       std::exception);
}

TEST_CASE("autograd checkpoint: several results, some unused, inputs among them, undefined ones") {
  const at::Tensor x = leaf(1, {3}), z = leaf(2, {3});
  const auto f = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1].detach(), in[0], in[1].exp().detach()};
  };
  const auto out = checkpoint_all(f, {x, z, at::Tensor()});
  REQUIRE(out.size() == 3);
  out[1].sum().backward({}, /*retain_graph=*/true);
  CHECK(same(x.grad(), at::ones({3})));
  CHECK_FALSE(z.grad().defined());
  x.mutable_grad() = at::Tensor();
  out[0].sum().backward();
  CHECK(same(x.grad(), z.detach()));
}

TEST_CASE("autograd checkpoint: what it throws fails the pass; second derivatives are refused") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble);
    const auto there = me.peer(1).make<block>(3);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&block::forward>(x);
      const auto e = co_await thrown_by(
          ctx.backward(y.sum(), {.graph = weft::autograd::gradient_graph::create}));
      CAPTURE(e.message());
      CHECK(e == errc::autograd_pass_aborted);
      CHECK(says(e, "no second derivatives"));
      CHECK((co_await ctx.gradients()).empty());
      co_await ctx.backward(y.sum());
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// y = x^2, whose backward asks libtorch's engine: a pass inside of a pass, `depth` deep.
struct nested : torch::autograd::Function<nested> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            std::int64_t depth) {
    ctx->save_for_backward({x});
    ctx->saved_data["depth"] = depth;
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list g) {
    const std::int64_t depth = ctx->saved_data["depth"].toInt();
    const at::AutoGradMode on(true);
    const at::Tensor x = ctx->get_saved_variables()[0].detach().set_requires_grad(true);
    const at::Tensor y = depth == 0 ? x * x : nested::apply(x, depth - 1);
    return {torch::autograd::grad({y}, {x}, {g[0].detach()})[0], at::Tensor()};
  }
};
at::Tensor deeply(const at::Tensor& x, std::int64_t depth) { return nested::apply(x, depth); }

TEST_CASE("autograd reentrant: nodes that run passes of libtorch, deeper than its threads go") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      for (const std::int64_t depth : {0, 3, 70}) {  // it changes threads after 60
        const at::Tensor y = co_await me.peer(1).call<&deeply>(x, depth);
        const auto g = co_await ctx.grad(y.sum(), {x});
        CHECK(same(g[0], (2 * x).detach()));
      }
    });
    CHECK(co_await all_forgotten(all));
  });
}

}  // namespace autograd_tests
