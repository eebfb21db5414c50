// SPDX-License-Identifier: BSL-1.0
// FAST mode: all messages of a context are taken as used. The programs of PyTorch's note on
// distributed autograd, in both modes, and what FAST does where they differ.
#include "service_functions.hpp"
#include <weft/autograd/backward.hpp>
#include <weft/autograd/service.hpp>

#include <string>
#include <vector>

namespace autograd_tests {

using weft::autograd::context_options;
using weft::autograd::mode;

constexpr context_options in_fast_mode{.mode = mode::fast};

TEST_CASE("autograd fast: the note's example, in as many messages as it has steps") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    for (const mode how : {mode::fast, mode::smart}) {
      CAPTURE((how == mode::fast));
      const at::Tensor t1 = leaf(1, {3, 3}), t2 = leaf(2, {3, 3}), t4 = leaf(3, {3, 3});
      const at::Tensor l1 = twin(t1), l2 = twin(t2), l4 = twin(t4);
      at::mul(l1 + l2, l4).sum().backward();
      co_await weft::autograd::with_context(
          me,
          [&](context ctx) -> asio::awaitable<void> {
            const at::Tensor t3 = co_await me.peer(1).call<&add>(t1, t2);
            const at::Tensor t5 = at::mul(t3, t4);
            const std::uint64_t before = frames_everywhere(all);
            co_await ctx.backward(t5.sum());
            const auto frames = [&] { return frames_everywhere(all) - before; };
            if (how == mode::fast) {
              // 2: recv2 -> send2. 5: recv1 -> send1. The rest computes where it is. Then worker 1
              // says that it is done, and hears that the pass has succeeded.
              CHECK(co_await eventually([&] { return frames() == 4; }));
            } else {
              CHECK(co_await eventually([&] { return frames() > 4; }));  // it asks first
            }
            const auto gradients = co_await ctx.gradients();
            CHECK(gradients.size() == 3);
            CHECK(same(gradients.find(t1), l1.grad()));
            CHECK(same(gradients.find(t2), l2.grad()));
            CHECK(same(gradients.find(t4), l4.grad()));
          },
          {.mode = how});
      CHECK_FALSE(t1.grad().defined());
    }
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd fast: the note's unused result: SMART ends, FAST waits and says for what") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3}), c = leaf(3, {3, 3});
    const auto run = [&](mode how) -> asio::awaitable<void> {
      co_await weft::autograd::with_context(
          me,
          [&](context ctx) -> asio::awaitable<void> {
            const at::Tensor d = co_await me.peer(1).call<&add>(a, b);
            const at::Tensor e = co_await me.peer(1).call<&mul>(b, c);
            CHECK(same(e.detach(), (b * c).detach()));
            if (how == mode::smart) {
              co_await ctx.backward(d.sum());
              const auto gradients = co_await ctx.gradients();
              CHECK(gradients.size() == 2);
              CHECK(same(gradients.find(a), at::ones({3, 3})));
              CHECK(same(gradients.find(b), at::ones({3, 3})));
              co_return;
            }
            const auto error = co_await thrown_by(ctx.backward(d.sum(), {.limit = 1s}));
            CAPTURE(error.message());
            CHECK(error == errc::timed_out);
            CHECK(says(error, "worker 'worker0' waits for the gradients of message 2, the "
                              "arguments of autograd_tests::mul to worker 'worker1'"));
            CHECK(says(error, "worker 'worker1' waits for the gradients of message 2, the result "
                              "of autograd_tests::mul to worker 'worker0'"));
            CHECK((co_await ctx.gradients()).empty());
          },
          {.mode = how});
    };
    co_await run(mode::smart);
    co_await run(mode::fast);
    CHECK(co_await all_forgotten(all));
  });
}

/// Uses the sum, and not the product that another worker computes.
asio::awaitable<at::Tensor> add_and_forget(worker& me, at::Tensor a, at::Tensor b) {
  static_cast<void>(co_await me.peer(2).call<&mul>(a, b));
  co_return a + b;
}

TEST_CASE("autograd fast: a pass that waits elsewhere names the message that it waits for there") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(1).call<&add_and_forget>(a, b);
          const auto error = co_await thrown_by(ctx.backward(y.sum(), {.limit = 1s}));
          CAPTURE(error.message());
          CHECK(error == errc::timed_out);
          CHECK(says(error, "worker 'worker1' waits for the gradients of"));
          CHECK(says(error, "the arguments of autograd_tests::mul to worker 'worker2'"));
        },
        in_fast_mode);
    CHECK(co_await all_forgotten(all));
  });
}

asio::awaitable<at::Tensor> pass_on(worker& me, at::Tensor x, std::uint32_t hops) {
  const at::Tensor y = x * 2;
  if (hops == 0) co_return y;
  const std::uint32_t next = (me.rank() + 1) % me.world_size();
  const at::Tensor z = co_await me.peer(next).call<&pass_on>(y, hops - 1);
  co_return z + y;
}

TEST_CASE("autograd fast: many round trips, calls to oneself, and retained passes") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    // f(x, 0) = 2x; f(x, n) = f(2x, n - 1) + 2x
    const auto here = [](const auto& self, const at::Tensor& x, int hops) -> at::Tensor {
      const at::Tensor y = x * 2;
      return hops == 0 ? y : self(self, y, hops - 1) + y;
    };
    const at::Tensor la = twin(a), lb = twin(b);
    ((here(here, la, 7) * lb + lb) * 3).sum().backward();
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(0).call<&pass_on>(a, 7u);
          const at::Tensor z = co_await me.peer(0).call<&add>(y * b, b);
          for (const auto kept : {graph_retention::retain, graph_retention::release}) {
            co_await ctx.backward((z * 3).sum(), {.retention = kept});
          }
          const auto gradients = co_await ctx.gradients();
          CHECK(same(gradients.find(a), la.grad() * 2));
          CHECK(same(gradients.find(b), lb.grad() * 2));
        },
        in_fast_mode);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd fast: a pass begun at another worker is fast, too") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {1});
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const auto loss = me.peer(1).remote<&twice>(a);
          co_await weft::autograd::backward(ctx, loss);
          CHECK(same((co_await ctx.gradients()).find(a), at::full({1}, 2.0)));
          const at::Tensor unused = co_await me.peer(1).call<&twice>(a);
          const auto error =
              co_await thrown_by(weft::autograd::backward(ctx, loss, {.limit = 500ms}));
          CAPTURE(error.message());
          CHECK(error == errc::timed_out);
        },
        in_fast_mode);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd fast: a node that fails anywhere fails the pass, and the next one works") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    for (const std::uint32_t at_worker : {0u, 1u, 2u}) {
      CAPTURE(at_worker);
      co_await weft::autograd::with_context(
          me,
          [&](context ctx) -> asio::awaitable<void> {
            at::Tensor x = a;
            for (const std::uint32_t w : {0u, 1u, 2u}) {
              x = w == at_worker ? co_await me.peer(w).call<&fragile_twice>(x)
                                 : co_await me.peer(w).call<&twice>(x);
            }
            fragile::broken = true;
            const auto e =
                co_await thrown_by(ctx.backward(x.sum(), {.retention = graph_retention::retain}));
            fragile::broken = false;
            CAPTURE(e.message());
            CHECK(e == errc::autograd_pass_aborted);
            CHECK(e.detail().peer == "worker" + std::to_string(at_worker));
            CHECK(says(e, "the fragile node broke"));
            CHECK((co_await ctx.gradients()).empty());
            co_await ctx.backward(x.sum());
            CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 8.0)));
          },
          in_fast_mode);
    }
    CHECK(co_await all_forgotten(all));
  });
}

at::Tensor first_of(const at::Tensor& a, const at::Tensor&) { return a * 2; }

TEST_CASE("autograd fast: a tensor without history fails the pass whose gradient reaches it") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    const at::Tensor stray = co_await me.peer(1).call<&twice>(a);  // outside any context
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(1).call<&first_of>(a, stray);
          co_await ctx.backward(y.sum());
          CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
        },
        in_fast_mode);
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(1).call<&add>(a, stray);
          const auto e = co_await thrown_by(ctx.backward(y.sum()));
          CAPTURE(e.message());
          CHECK(e == errc::invalid_argument);
          CHECK(says(e, "was not recorded"));
          CHECK((co_await ctx.gradients()).empty());
        },
        in_fast_mode);
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd fast: a pass is cancelled at all workers") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    gate door;
    fragile::door = &door;
    co_await weft::autograd::with_context(
        me,
        [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(1).call<&fragile_twice>(a);
          {
            auto dropped = me.spawn(ctx.backward(y.sum()));
            CHECK(co_await eventually([&] { return door.arrived() == 1; }));
          }
          CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
          door.open();
          CHECK(co_await eventually([&] { return passes_everywhere(all) == 0; }));
          CHECK((co_await ctx.gradients()).empty());
        },
        in_fast_mode);
    fragile::door = nullptr;
    CHECK(co_await all_forgotten(all));
  });
}

}  // namespace autograd_tests
