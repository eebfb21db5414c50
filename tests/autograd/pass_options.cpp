// SPDX-License-Identifier: BSL-1.0
// Passes for some inputs only, gradients with a history, and losses that live elsewhere: as one
// process does it.
#include "service_functions.hpp"
#include <weft/autograd/backward.hpp>
#include <weft/autograd/service.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <vector>

namespace autograd_tests {

using weft::autograd::gradient_graph;

constexpr weft::autograd::backward_options with_history{.graph = gradient_graph::create};

/// A weight of another worker, and functions of it with derivatives of all orders.
class curved {
 public:
  explicit curved(int seed) : weight_(leaf(seed, {3, 3}, at::kDouble)) {}
  at::Tensor weight() { return weight_; }
  at::Tensor forward(const at::Tensor& x) { return of(x, weight_); }
  asio::awaitable<at::Tensor> then(weft::rref<curved> next, at::Tensor x) {
    const at::Tensor y = forward(x);
    co_return co_await next.call<&curved::forward>(y) + y;
  }
  at::Tensor loss(const at::Tensor& x) { return forward(x).sum(); }
  static at::Tensor of(const at::Tensor& x, const at::Tensor& w) { return x.pow(2).matmul(w) * w; }

 private:
  at::Tensor weight_;
};

/// y = 2x; counts how often its backward runs.
struct counted_node : torch::autograd::Function<counted_node> {
  static inline std::atomic<int> runs{0};
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    ++runs;
    return {g[0] * 2};
  }
};
/// (2p)x for a parameter p of this worker.
at::Tensor parameter_of_counted() {
  static const at::Tensor p = leaf(5, {3}, at::kDouble);
  return p;
}
at::Tensor by_counted(const at::Tensor& x) {
  return counted_node::apply(parameter_of_counted()) * x;
}
asio::awaitable<bool> has_gradient(worker& me) {
  const auto gradients = co_await weft::autograd::this_context(me).gradients();
  co_return gradients.find(parameter_of_counted()).defined();
}

TEST_CASE("autograd inputs: only their gradients are computed, anywhere") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}, at::kDouble), z = leaf(2, {3}, at::kDouble);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      counted_node::runs = 0;
      const at::Tensor y = co_await me.peer(1).call<&by_counted>(x * z);
      const at::Tensor root = (y + counted_node::apply(z)).sum();
      co_await ctx.backward(root, {.retention = graph_retention::retain, .inputs = {x}});
      CHECK(counted_node::runs == 0);
      auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 1);
      const at::Tensor p = parameter_of_counted();
      CHECK(same(gradients.find(x), (2 * p * z).detach()));
      CHECK_FALSE(co_await me.peer(1).call<&has_gradient>());

      co_await ctx.backward(root, {.inputs = {z, x}});
      CHECK(counted_node::runs == 1);  // that of z
      gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 2);
      CHECK(same(gradients.find(x), (4 * p * z).detach()));  // of both passes
      CHECK(same(gradients.find(z), (2 * p * x + 2).detach()));
      CHECK_FALSE(co_await me.peer(1).call<&has_gradient>());
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd inputs: a leaf that is reached only behind another worker") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}), y = leaf(2, {3}), unused = leaf(3, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      at::Tensor h = x;
      for (int i = 0; i < 3; ++i) h = co_await me.peer(1).call<&twice>(h) + y;
      co_await ctx.backward(h.sum(), {.retention = graph_retention::retain, .inputs = {x, unused}});
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 1);
      CHECK(same(gradients.find(x), at::full({3}, 8.0)));
      const auto g = co_await ctx.grad(h.sum(), {unused, x, y});
      REQUIRE(g.size() == 3);
      CHECK_FALSE(g[0].defined());
      CHECK(same(g[1], at::full({3}, 8.0)));
      CHECK(same(g[2], at::full({3}, 7.0)));
      CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, 8.0)));  // nothing was added
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// What both, `ctx.grad` and libtorch's, give for computed inputs with hooks.
TEST_CASE("autograd grad: computed inputs, hooks and roots among them, as libtorch's grad") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}, at::kDouble);
    const at::Tensor lx = twin(x);
    const auto build = [](const at::Tensor& from, const at::Tensor& doubled) {
      std::vector<at::Tensor> v{from, doubled};
      v.push_back(v[1] * v[1]);  // 2
      v.push_back(v[2].sum());   // 3, the root
      v[1].register_hook([](const at::Tensor& g) { return g * 3; });
      v[2].register_hook([](const at::Tensor& g) { return g * 5; });
      v[0].register_hook([](const at::Tensor& g) { return g * 7; });
      return v;
    };
    const auto local = build(lx, lx * 2);
    for (const auto& wanted : std::vector<std::vector<std::size_t>>{
             {0}, {1}, {2}, {3}, {0, 1}, {1, 2, 3}, {2, 0}, {3, 2, 1, 0}}) {
      // One after another: for several at once, libtorch leaves out some hooks.
      std::vector<at::Tensor> expected;
      for (const std::size_t i : wanted) {
        expected.push_back(torch::autograd::grad({local[3]}, {local[i]}, {}, true)[0]);
      }
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor mine = twin(x);
        const auto there = build(mine, co_await me.peer(1).call<&twice>(mine));
        std::vector<at::Tensor> inputs;
        for (const std::size_t i : wanted) inputs.push_back(there[i]);
        auto g = co_await ctx.grad(there[3], inputs);
        REQUIRE(g.size() == expected.size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          CAPTURE(wanted[i]);
          CHECK(same(g[i], expected[i]));
          g[i].fill_(9);  // it is the caller's
        }
        CHECK((co_await ctx.gradients()).empty());
      });
    }
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd inputs: what cannot be one is refused with a sentence") {
  run_workers(1, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = x * 2;
      const auto refused = [&](asio::awaitable<void> pass,
                               const char* text) -> asio::awaitable<void> {
        const auto e = co_await thrown_by(std::move(pass));
        CAPTURE(e.message());
        CHECK(e == errc::invalid_argument);
        CHECK(says(e, text));
      };
      const auto grad = [&](std::vector<at::Tensor> of) -> asio::awaitable<void> {
        static_cast<void>(co_await ctx.grad(y.sum(), std::move(of)));
      };
      co_await refused(grad({}), "no input was given");
      co_await refused(grad({x, at::Tensor()}), "input 1 is undefined");
      co_await refused(grad({at::ones({3})}), "input 0 does not require grad");
      co_await refused(ctx.backward(y.sum(), {.inputs = {y}}), "input 0 is no leaf");
    });
  });
}

TEST_CASE("autograd graph: second and third derivatives through three workers") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble);
    const at::Tensor lx = twin(x), lv = leaf(2, {3, 3}, at::kDouble),
                     lw = leaf(3, {3, 3}, at::kDouble);
    const at::Tensor h = curved::of(lx, lv);
    const at::Tensor loss = (curved::of(h, lw) + h).sum();
    const at::Tensor first = torch::autograd::grad({loss}, {lx}, {}, {}, true)[0];
    const at::Tensor second = torch::autograd::grad({first.sum()}, {lx}, {}, {}, true)[0];
    const auto third = torch::autograd::grad({second.sum()}, {lx, lv, lw});

    const auto near = me.peer(1).make<curved>(2);
    const auto far = me.peer(2).make<curved>(3);
    const auto near_weight = near.remote<&curved::weight>();
    const auto far_weight = far.remote<&curved::weight>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await near.call<&curved::then>(far, x);
      const auto g1 = co_await ctx.grad(y.sum(), {x}, with_history);
      CHECK(same(g1[0], first));
      CHECK(g1[0].requires_grad());
      const auto g2 = co_await ctx.grad(g1[0].sum(), {x}, with_history);
      CHECK(same(g2[0], second));
      CHECK((co_await ctx.gradients()).empty());
      co_await ctx.backward(g2[0].sum());
      CHECK(same((co_await ctx.gradients()).find(x), third[0]));
      CHECK(same(co_await near_weight.call<&gradient_of>(), third[1]));
      CHECK(same(co_await far_weight.call<&gradient_of>(), third[2]));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd graph: backward adds gradients with a history, and a later pass adds to them") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble), lx = twin(x);
    const at::Tensor lw = leaf(2, {3, 3}, at::kDouble);
    // Gradient penalty: the loss has the norm of its own gradient.
    const at::Tensor loss = curved::of(lx, lw).sum();
    const at::Tensor g = torch::autograd::grad({loss}, {lx}, {}, {}, true)[0];
    const auto expected = torch::autograd::grad({loss + g.pow(2).sum()}, {lx, lw});

    const auto layer = me.peer(1).make<curved>(2);
    const auto weight = layer.remote<&curved::weight>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await layer.call<&curved::forward>(x);
      co_await ctx.backward(y.sum(), with_history);
      const at::Tensor mine = (co_await ctx.gradients()).find(x);
      CHECK(same(mine, g));
      CHECK(mine.requires_grad());
      co_await ctx.backward(mine.pow(2).sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(x), expected[0]));
      CHECK(same(co_await weight.call<&gradient_of>(), expected[1]));
      CHECK(same(mine, g));  // the sum is another tensor
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd graph: hooks see gradients with a history, and what they return counts") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}, at::kDouble);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&mul>(x, x);
      bool seen = false;
      const at::Tensor z = y * x;
      y.register_hook([&](const at::Tensor& g) {
        seen = g.requires_grad();
        return g * 2;
      });
      const auto g = co_await ctx.grad(z.sum(), {x}, with_history);  // x*x + 2 * x * 2x
      CHECK(seen);
      CHECK(same(g[0], (5 * x * x).detach()));
      // Again through the hook: g is y + 2 * (grad of y) * x with grad of y = x.
      const auto second = co_await ctx.grad(g[0].sum(), {x});
      const at::Tensor lx = twin(x);
      const at::Tensor ly = at::mul(lx, lx);
      ly.register_hook([](const at::Tensor& h) { return h * 2; });
      const auto local = torch::autograd::grad({(ly * lx).sum()}, {lx}, {}, {}, true);
      CHECK(same(g[0], local[0]));
      CHECK(same(second[0], torch::autograd::grad({local[0].sum()}, {lx})[0]));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd graph: without it, gradients have no history, and a second pass says so") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await me.peer(1).call<&mul>(x, x);
      const auto g = co_await ctx.grad(y.sum(), {x}, {.retention = graph_retention::retain});
      CHECK_FALSE(g[0].requires_grad());
      const auto e = co_await thrown_by(ctx.backward(g[0].sum()));
      CHECK(e == errc::invalid_argument);
      // With a history, but over a graph that was given up.
      const auto first = co_await ctx.grad(
          y.sum(), {x}, {.retention = graph_retention::release, .graph = gradient_graph::create});
      CHECK(first[0].requires_grad());
      const auto freed = co_await thrown_by(ctx.backward(y.sum()));
      CAPTURE(freed.message());
      CHECK(freed == errc::autograd_pass_aborted);
      CHECK(says(freed, "second time"));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd plans: a thousand passes over a retained graph, one discovery") {
  for (const auto [how, io_threads] : ways()) {
    run_workers(
        3, how, with_io_threads(io_threads), [](workers& all, worker& me) -> asio::awaitable<void> {
          const at::Tensor x = leaf(1, {3, 3}, at::kDouble), lx = twin(x);
          const at::Tensor lv = leaf(2, {3, 3}, at::kDouble), lw = leaf(3, {3, 3}, at::kDouble);
          const at::Tensor h = curved::of(lx, lv);
          (curved::of(h, lw) + h).sum().backward();
          const auto near = me.peer(1).make<curved>(2);
          const auto far = me.peer(2).make<curved>(3);
          const auto near_weight = near.remote<&curved::weight>();
          const auto far_weight = far.remote<&curved::weight>();
          constexpr int passes = 1000;
          co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
            const at::Tensor y = co_await near.call<&curved::then>(far, x);
            // Not used: in a FAST pass it would be waited for.
            const at::Tensor unused = co_await near.call<&curved::forward>(x);
            const at::Tensor root = y.sum();
            co_await ctx.backward(root, {.retention = graph_retention::retain});
            const std::uint64_t before = frames_everywhere(all);
            for (int i = 1; i + 1 < passes; ++i) {
              co_await ctx.backward(root, {.retention = graph_retention::retain});
            }
            // Four gradients; two workers say that they are done, and hear of the end.
            const auto frames = [&] { return frames_everywhere(all) - before; };
            CHECK(co_await eventually([&] { return frames() == 8u * (passes - 2); }));
            co_await ctx.backward(root);
            CHECK(same((co_await ctx.gradients()).find(x), lx.grad() * passes));
            CHECK(same(co_await near_weight.call<&gradient_of>(), lv.grad() * passes));
            CHECK(same(co_await far_weight.call<&gradient_of>(), lw.grad() * passes));
            const auto e = co_await thrown_by(ctx.backward(root));
            CHECK(e == errc::autograd_pass_aborted);
            CHECK(says(e, "second time"));
          });
          CHECK(co_await all_forgotten(all));
        });
  }
}

TEST_CASE("autograd plans: several roots at once, inputs, and a graph that is dropped") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}, at::kDouble);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const weft::autograd::backward_options again{.retention = graph_retention::retain};
      double expected = 0;
      // More graphs than plans are kept, each over twice, in turns; then with others in their place.
      for (int round = 0; round < 3; ++round) {
        std::vector<at::Tensor> roots;
        for (int i = 0; i < 10; ++i) {
          const std::uint32_t there = 1u + static_cast<std::uint32_t>(i % 2);
          roots.push_back((co_await me.peer(there).call<&twice>(x * (i + 1))).sum());
        }
        for (int pass = 0; pass < 2; ++pass) {
          std::vector<weft::future<void>> all_at_once;
          for (const at::Tensor& r : roots) {
            all_at_once.push_back(me.spawn(ctx.backward(r, again)));
          }
          for (auto& one : all_at_once) co_await std::move(one);
          expected += 2 * 55;
        }
        const auto g = co_await ctx.grad(roots[3], {x}, again);
        CHECK(same(g[0], at::full({3}, 8.0, at::kDouble)));
        co_await ctx.backward({roots[3], roots[4]}, again);
        co_await ctx.backward({roots[4], roots[3]}, again);
        expected += 2 * (8 + 10);
      }
      CHECK(same((co_await ctx.gradients()).find(x), at::full({3}, expected, at::kDouble)));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd plans: a repeated pass that fails or is given up leaves the plan") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const weft::autograd::backward_options again{.retention = graph_retention::retain};
      const at::Tensor loss = (co_await me.peer(1).call<&fragile_twice>(a)).sum();
      co_await ctx.backward(loss, again);
      for (int i = 0; i < 20; ++i) {
        fragile::broken = true;
        const auto e = co_await thrown_by(ctx.backward(loss, again));
        fragile::broken = false;
        CHECK(e == errc::autograd_pass_aborted);
        CHECK(e.detail().peer == "worker1");
      }
      {
        gate door;
        fragile::door = &door;
        auto options = again;
        options.limit = 50ms;
        const auto e = co_await thrown_by(ctx.backward(loss, options));
        CHECK(e == errc::timed_out);
        fragile::door = nullptr;
        door.open();
        CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
      }
      co_await ctx.backward(loss, again);
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 4.0)));
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// Its backward gets zeros for gradients that are undefined, as libtorch's own functions do.
std::vector<at::Tensor> two_counted(const at::Tensor& x) { return {x * 3, counted_node::apply(x)}; }

TEST_CASE(
    "autograd service: of a message with two tensors, the node of one that is not used rests") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3}), z = leaf(2, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      for (const std::uint32_t there : {0u, 1u}) {
        counted_node::runs = 0;
        const auto both = co_await me.peer(there).call<&two_counted>(x);
        const auto only = co_await me.peer(there).call<&two_counted>(z);
        co_await ctx.backward((both[0] + only[1]).sum());
        CHECK(counted_node::runs == 1);
      }
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(x), at::full({3}, 6.0)));
      CHECK(same(gradients.find(z), at::full({3}, 4.0)));
    });
    CHECK(co_await all_forgotten(all));
  });
}

asio::awaitable<void> from_there(context ctx, rref<at::Tensor> loss) {
  co_await weft::autograd::backward(ctx, loss, {.limit = 20s});
}

TEST_CASE("autograd rref: backward from a loss that another worker keeps") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor x = leaf(1, {3, 3}, at::kDouble), lx = twin(x);
    const at::Tensor lw = leaf(2, {3, 3}, at::kDouble);
    curved::of(lx, lw).sum().backward();
    const auto layer = me.peer(1).make<curved>(2);
    const auto weight = layer.remote<&curved::weight>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const rref<at::Tensor> loss = layer.remote<&curved::loss>(x);
      co_await weft::autograd::backward(ctx, loss, {.retention = graph_retention::retain});
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad()));
      CHECK(same(co_await weight.call<&gradient_of>(), lw.grad()));

      // By a coroutine that has no scope, as one that the worker's loop runs for somebody else.
      std::exception_ptr thrown;
      bool over = false;
      asio::co_spawn(me.get_executor(), from_there(ctx, loss), [&](std::exception_ptr e) {
        thrown = e;
        over = true;
      });
      CHECK(co_await eventually([&] { return over; }));
      CHECK_FALSE(thrown);
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad() * 2));

      // Gradients of its roots are given where the pass is asked for.
      const rref<at::Tensor> out = layer.remote<&curved::forward>(x);
      co_await weft::autograd::backward(ctx, out, {.gradients = {at::ones({3, 3}, at::kDouble)}});
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad() * 3));

      const auto e = co_await thrown_by(weft::autograd::backward(ctx, out));
      CAPTURE(e.message());
      CHECK(e == errc::invalid_argument);
      CHECK(says(e, "is not a scalar"));
      const auto inputs = co_await thrown_by(weft::autograd::backward(ctx, out, {.inputs = {x}}));
      CHECK(inputs == errc::invalid_argument);
    });
    CHECK(co_await all_forgotten(all));
  });
}

}  // namespace autograd_tests
