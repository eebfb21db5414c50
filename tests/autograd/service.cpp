// SPDX-License-Identifier: BSL-1.0
// Gradients over several workers that are those of one process.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

namespace autograd_tests {

/// (a + b) * b, with the sum made elsewhere in the given way.
template <class Sum>
asio::awaitable<void> check_sum(worker& me, Sum sum) {
  const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3});
  const at::Tensor la = twin(a), lb = twin(b);
  ((la + lb) * lb).sum().backward();
  co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
    const at::Tensor c = co_await sum(a, b);
    co_await ctx.backward((c * b).sum());
    const auto gradients = co_await ctx.gradients();
    CHECK(gradients.size() == 2);
    CHECK(same(gradients.find(a), la.grad()));
    CHECK(same(gradients.find(b), lb.grad()));
  });
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("autograd service: a call of any kind has the gradients of one process") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1);
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) { return there.call<&add>(a, b); });
    co_await check_sum(me,
                       [&](at::Tensor a, at::Tensor b) { return there.call<&add_later>(a, b); });
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) -> asio::awaitable<at::Tensor> {
      auto later = there.start<&add>(a, b);
      co_return co_await std::move(later);
    });
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) -> asio::awaitable<at::Tensor> {
      const auto stays = there.remote<&add>(a, b);
      co_return co_await stays.to_here();
    });
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) -> asio::awaitable<at::Tensor> {
      const at::Tensor two_a = co_await there.call<&twice>(a);
      const at::Tensor a_again = two_a - a;
      co_return a_again + b;
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd service: a call to oneself is recorded too") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const std::uint64_t before = frames_everywhere(all);
    const auto here = me.peer(0);
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) { return here.call<&add>(a, b); });
    co_await check_sum(me, [&](at::Tensor a, at::Tensor b) { return here.call<&add_later>(a, b); });
    CHECK(frames_everywhere(all) == before);
  });
}

asio::awaitable<at::Tensor> fetch_and_mul(rref<at::Tensor> r, at::Tensor by) {
  co_return (co_await r.to_here()) * by;
}

TEST_CASE("autograd service: a reference brings gradients to its owner, whoever used it") {
  workers_everywhere(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    const at::Tensor la = twin(a), lb = twin(b);
    ((la + lb) * lb * 3).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto sum = me.peer(1).remote<&add>(a, b);  // owner 1, used by 1, 2 and 3
      at::Tensor total = co_await me.peer(2).call<&fetch_and_mul>(sum, b);
      total = total + co_await me.peer(3).call<&fetch_and_mul>(sum, b);
      total = total + co_await me.peer(1).call<&fetch_and_mul>(sum, b);
      co_await ctx.backward(total.sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 2);
      CHECK(same(gradients.find(a), la.grad()));
      CHECK(same(gradients.find(b), lb.grad()));
      // Of a tensor shared before: the gradient is at its owner.
      const auto mine = me.share(a);
      co_await ctx.backward((co_await me.peer(2).call<&fetch_and_mul>(mine, b)).sum());
      CHECK(same((co_await ctx.gradients()).find(a), la.grad() + b.detach()));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd service: parameters of other workers get theirs there") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto at1 = me.peer(1).make<pair_of_parameters>(1);
    const auto at2 = me.peer(2).make<pair_of_parameters>(5);
    const auto weight = at1.remote<&pair_of_parameters::first>();
    const auto unused = at1.remote<&pair_of_parameters::second>();
    const auto first2 = at2.remote<&pair_of_parameters::first>();
    const auto second2 = at2.remote<&pair_of_parameters::second>();
    const at::Tensor x = leaf(3, {2, 3});
    const at::Tensor lx = twin(x), l1 = leaf(1, {3, 3}), l2 = leaf(5, {3, 3}), l3 = leaf(6, {3, 3});
    lx.matmul(l1).matmul(l2).matmul(l3).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor h = co_await at1.call<&pair_of_parameters::use_first>(x);
      const at::Tensor y = co_await at2.call<&pair_of_parameters::use_both>(h);
      co_await ctx.backward(y.sum());
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad()));
      CHECK(same(co_await weight.call<&gradient_of>(), l1.grad()));
      CHECK(same(co_await first2.call<&gradient_of>(), l2.grad()));
      CHECK(same(co_await second2.call<&gradient_of>(), l3.grad()));
      CHECK_FALSE((co_await unused.call<&gradient_of>()).defined());
      CHECK(co_await me.peer(1).call<&gradients_here>() == 1);
      CHECK_FALSE(co_await at1.call<&pair_of_parameters::grad_is_defined>());
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd service: references given as arguments bring gradients from worker to worker") {
  workers_everywhere(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3});
    const at::Tensor la = twin(a), lb = twin(b), l1 = leaf(1, {3, 3});
    const at::Tensor sum_here = la + lb;
    ((sum_here * lb + sum_here) * 2).matmul(l1).sum().backward();
    const auto layer = me.peer(3).make<pair_of_parameters>(1);
    const auto weight = layer.remote<&pair_of_parameters::first>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto sum = me.peer(1).remote<&add>(a, b);
      const auto product = me.peer(2).remote<&mul>(sum, b);
      const auto both = me.peer(3).remote<&add_later>(product, sum);
      const auto doubled = me.peer(0).remote<&twice>(both);
      const at::Tensor y = co_await layer.call<&pair_of_parameters::use_first>(doubled);
      co_await ctx.backward(y.sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 2);
      CHECK(same(gradients.find(a), la.grad()));
      CHECK(same(gradients.find(b), lb.grad()));
      CHECK(same(co_await weight.call<&gradient_of>(), l1.grad()));
    });
    CHECK(co_await all_forgotten(all));
  });
}

/// Where the operations of one computation run: at changing workers, or here.
struct far {
  worker& me;
  std::uint32_t next = 0;
  template <auto F, class... A>
  auto run(A... a) {
    return me.peer(next++ % 4).call<F>(a...);
  }
};
struct near {
  template <auto F, class... A>
  asio::awaitable<at::Tensor> run(A... a) {
    co_return F(a...);
  }
};

TEST_CASE("autograd service: many round trips over changing peers") {
  run_workers(4, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3});
    const auto compute = [](auto& ops, at::Tensor x, at::Tensor y) -> asio::awaitable<at::Tensor> {
      const at::Tensor sum = co_await ops.template run<&add>(x, y);
      const at::Tensor product = co_await ops.template run<&mul>(sum, x);
      const at::Tensor s1 = co_await ops.template run<&stack>(std::vector{sum, product});
      const at::Tensor s2 = co_await ops.template run<&stack>(std::vector{product, y});
      const at::Tensor both = co_await ops.template run<&bmm>(s1, s2);
      co_return co_await ops.template run<&matmul>(both, x);
    };
    const at::Tensor la = twin(a), lb = twin(b);
    near here;
    (co_await compute(here, la, lb)).sum().backward();
    for (std::uint32_t first = 0; first < 4; ++first) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        far ops{me, first};
        co_await ctx.backward((co_await compute(ops, a, b)).sum());
        const auto gradients = co_await ctx.gradients();
        CHECK(same(gradients.find(a), la.grad()));
        CHECK(same(gradients.find(b), lb.grad()));
      });
    }
  });
}

TEST_CASE("autograd service: shapes and dtypes may differ") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      const at::Tensor a = leaf(1, {4, 6}, type), b = leaf(2, {6}, at::kDouble);
      const at::Tensor c = leaf(3, {}, at::kFloat), none = leaf(4, {0, 6});
      const at::Tensor la = twin(a), lb = twin(b), lc = twin(c);
      ((la + lb) * lc).sum().backward();
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor sum = co_await me.peer(1).call<&add>(a, b);
        const at::Tensor y = co_await me.peer(1).call<&mul>(sum, c);
        const at::Tensor empty = co_await me.peer(1).call<&add>(none, none);
        CHECK((y.scalar_type() == at::kDouble));
        co_await ctx.backward({y.sum(), empty.sum()});
        const auto gradients = co_await ctx.gradients();
        CHECK(same(gradients.find(a), la.grad()));
        CHECK(same(gradients.find(b), lb.grad()));
        CHECK(same(gradients.find(c), lc.grad()));
        CHECK(same(gradients.find(none), at::zeros({0, 6})));
      });
    }
  });
}

TEST_CASE("autograd service: results that are not used cost nothing and hang nothing") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<pair_of_parameters>(1);
    const auto first = there.remote<&pair_of_parameters::first>();
    const auto second = there.remote<&pair_of_parameters::second>();
    const at::Tensor x = leaf(3, {2, 3}), y = leaf(4, {2, 3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      // The caller ignores a result; the callee returned two results, of which one is used.
      static_cast<void>(co_await me.peer(2).call<&add>(y, y));
      const at::Tensor used = co_await there.call<&pair_of_parameters::use_first>(x);
      const at::Tensor unused = co_await there.call<&pair_of_parameters::use_second>(x);
      co_await ctx.backward(used.sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 1);
      CHECK(gradients.find(x).defined());
      CHECK((co_await first.call<&gradient_of>()).defined());
      CHECK_FALSE((co_await second.call<&gradient_of>()).defined());
      CHECK(service(all, 2).frames() == 0);
    });
    // Parts of a result: what is not used counts as zero, or is not there.
    const at::Tensor lx = twin(x), ly = twin(y);
    at::stack({lx, ly}).narrow(0, 0, 1).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor both = co_await me.peer(1).call<&stack>(std::vector{x, y});
      co_await ctx.backward(both.narrow(0, 0, 1).sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(x), lx.grad()));
      CHECK(same(gradients.find(y), at::zeros({2, 3})));
    });
    const at::Tensor wide = leaf(5, {10}), lwide = twin(wide);
    const auto parts = lwide.split(2);
    (parts[0] * 2 + parts[2] * 3 + parts[4]).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const auto five = co_await me.peer(1).call<&split>(wide, 2);
      CHECK(five.size() == 5);
      co_await ctx.backward((five[0] * 2 + five[2] * 3 + five[4]).sum());
      CHECK(same((co_await ctx.gradients()).find(wide), lwide.grad()));
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd service: other calls of the context may be under way during backward") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    gate door;
    fragile::door = &door;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor slow = co_await me.peer(1).call<&fragile_twice>(a);
      auto first = me.spawn(ctx.backward(slow.sum()));
      CHECK(co_await eventually([&] { return door.arrived() == 1; }));
      const at::Tensor c = co_await me.peer(1).call<&add>(a, b);
      door.open();
      co_await std::move(first);
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
      co_await ctx.backward(c.sum());
      CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 3.0)));
    });
    fragile::door = nullptr;
  });
}

TEST_CASE("autograd service: several roots, and gradients given for them") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3});
    const at::Tensor la = twin(a), lb = twin(b);
    ((la + lb).sum() + (la * lb).sum() + (la * la).sum() + lb.sum()).backward();
    (la.matmul(lb) * 5).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor r1 = co_await me.peer(1).call<&add>(a, b);
      const at::Tensor r2 = co_await me.peer(2).call<&mul>(a, b);
      const at::Tensor r3 = co_await me.peer(1).call<&mul>(a, a);
      co_await ctx.backward({r1.sum(), r2.sum(), r3.sum(), b.sum()});
      const at::Tensor r4 = co_await me.peer(2).call<&matmul>(a, b);
      co_await ctx.backward({r4}, {.gradients = {at::full({3, 3}, 5.0)}});
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(a), la.grad()));
      CHECK(same(gradients.find(b), lb.grad()));
    });
  });
}

TEST_CASE("autograd service: passes over a retained graph add up, also at other workers") {
  run_workers(
      2, over::tcp, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
        const auto there = me.peer(1).make<pair_of_parameters>(1);
        const auto first = there.remote<&pair_of_parameters::first>();
        const at::Tensor x = leaf(3, {2, 3});
        const at::Tensor lx = twin(x), lw = leaf(1, {3, 3});
        lx.matmul(lw).sum().backward();
        constexpr int passes = 120;
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor loss = (co_await there.call<&pair_of_parameters::use_first>(x)).sum();
          for (int i = 0; i < passes - 20; ++i) {
            co_await ctx.backward(loss, {.retention = graph_retention::retain});
          }
          // And 20 at once.
          std::vector<weft::future<void>> at_once;
          for (int i = 0; i < 20; ++i) {
            at_once.push_back(me.spawn(ctx.backward(loss, {.retention = graph_retention::retain})));
          }
          for (auto& f : at_once) co_await std::move(f);
          CHECK(same((co_await ctx.gradients()).find(x), lx.grad() * passes));
          CHECK(same(co_await first.call<&gradient_of>(), lw.grad() * passes));
          CHECK(passes_everywhere(all) == 0);
        });
      });
}

asio::awaitable<at::Tensor> bounce(worker& me, at::Tensor x, at::Tensor by, int hops) {
  at::Tensor y = x * by;
  if (hops > 0) y = co_await me.peer(1 - me.rank()).call<&bounce>(y, by, hops - 1);
  co_return y + x;
}

TEST_CASE("autograd service: a path that leaves a worker and comes back, many times") {
  for (const over how : {over::inproc, over::tcp}) {
    run_workers(2, how, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
      const at::Tensor x = leaf(1, {3}), by = leaf(2, {3});
      for (const int hops : {1, 3, 10}) {
        const at::Tensor lx = twin(x), lby = twin(by);
        const auto local = [&](auto& self, at::Tensor t, int left) -> at::Tensor {
          const at::Tensor y = t * lby;
          return (left > 0 ? self(self, y, left - 1) : y) + t;
        };
        local(local, lx, hops).sum().backward();
        co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
          const at::Tensor y = co_await me.peer(1).call<&bounce>(x, by, hops);
          co_await ctx.backward(y.sum());
          const auto gradients = co_await ctx.gradients();
          CHECK(gradients.size() == 2);
          CHECK(same(gradients.find(x), lx.grad()));
          CHECK(same(gradients.find(by), lby.grad()));
          CHECK(co_await me.peer(1).call<&gradients_here>() == 0);
        });
      }
      CHECK(co_await all_forgotten(all));
    });
  }
}

TEST_CASE("autograd service: whether a tensor requires grad is seen by the callee") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3}).detach();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      CHECK(co_await me.peer(1).call<&requires_grad>(a));
      CHECK_FALSE(co_await me.peer(1).call<&requires_grad>(b));
      CHECK_FALSE(co_await me.peer(1).call<&is_leaf>(a));
      const at::Tensor c = co_await me.peer(1).call<&mul>(a, b);
      co_await ctx.backward(c.sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 1);
      CHECK(same(gradients.find(a), b));
      CHECK_FALSE((co_await me.peer(1).call<&add>(b, b)).requires_grad());
      // Every second tensor of a nested value.
      std::vector<at::Tensor> many;
      for (int i = 0; i < 10; ++i) many.push_back(leaf(i, {2}).set_requires_grad(i % 2 == 0));
      co_await ctx.backward((co_await me.peer(1).call<&stack>(many)).sum());
      const auto after = co_await ctx.gradients();
      CHECK(after.size() == 6);
      for (std::size_t i = 0; i < many.size(); ++i) {
        CHECK(after.find(many[i]).defined() == (i % 2 == 0));
      }
    });
  });
}

TEST_CASE("autograd service: without calls no message is sent") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3});
    co_await me.peer(1).call<&nothing>();
    const auto sent = me.stats().frames_sent;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      co_await ctx.backward((a * a).sum());
      CHECK(same((co_await ctx.gradients()).find(a), a.detach() * 2));
    });
    CHECK(me.stats().frames_sent == sent);
    CHECK(frames_everywhere(all) == 0);
  });
}

TEST_CASE("autograd service: workers whose results are not used see no message of the pass") {
  run_workers(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      std::vector<at::Tensor> results;
      for (const std::uint32_t r : {1u, 2u, 3u}) {
        results.push_back(co_await me.peer(r).call<&add>(a, b));
      }
      std::vector<std::uint64_t> received;
      for (std::uint32_t r = 0; r < 4; ++r) received.push_back(all.at(r).stats().frames_received);
      co_await ctx.backward(results[1].sum());
      CHECK(service(all, 0).frames() == 3);  // need, gradients, end
      CHECK(service(all, 2).frames() == 4);  // need, ack, gradients, done
      for (const std::uint32_t r : {1u, 3u}) {
        CHECK(service(all, r).frames() == 0);
        CHECK(all.at(r).stats().frames_received == received[r]);
      }
    });
  });
}

TEST_CASE("autograd service: two ways to one leaf add up once each") {
  run_workers(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<pair_of_parameters>(1);
    const auto first = there.remote<&pair_of_parameters::first>();
    const at::Tensor x = leaf(3, {3, 3}), y = leaf(4, {3, 3});
    const at::Tensor lx = twin(x), ly = twin(y), lw = leaf(1, {3, 3});
    (lx.matmul(lw) * ly.matmul(lw)).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor left = co_await there.call<&pair_of_parameters::use_first>(x);
      const at::Tensor right = co_await there.call<&pair_of_parameters::use_first>(y);
      const at::Tensor product = co_await me.peer(2).call<&mul>(left, right);
      co_await ctx.backward(product.sum());
      CHECK(same(co_await first.call<&gradient_of>(), lw.grad()));
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad()));
    });
  });
}

TEST_CASE("autograd service: chains of a thousand calls to oneself, and of hundreds to another") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {2}), one = at::ones({2});
    for (const auto& [rank, length] : {std::pair{0u, 1000}, std::pair{1u, 300}}) {
      co_await weft::autograd::with_context(
          me, [&, r = rank, n = length](context ctx) -> asio::awaitable<void> {
            at::Tensor x = a;
            for (int i = 0; i < n; ++i) x = co_await me.peer(r).call<&add>(x, one);
            co_await ctx.backward(x.sum());
            CHECK(same((co_await ctx.gradients()).find(a), at::ones({2})));
          });
    }
    CHECK(co_await all_forgotten(all));
  });
}

class hooked {
 public:
  hooked() : weight_(leaf(1, {3})) {
    weight_.register_hook([calls = calls_](const at::Tensor& g) {
      ++*calls;
      return g * 2;
    });
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight_; }
  at::Tensor weight() { return weight_; }
  int calls() { return *calls_; }

 private:
  std::shared_ptr<std::atomic<int>> calls_ = std::make_shared<std::atomic<int>>(0);
  at::Tensor weight_;
};

TEST_CASE("autograd service: hooks of tensors run where the tensors are") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there = me.peer(1).make<hooked>();
    const auto weight = there.remote<&hooked::weight>();
    const at::Tensor x = leaf(2, {3});
    x.register_hook([](const at::Tensor& g) { return g * 3; });
    int received = 0;
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor y = co_await there.call<&hooked::forward>(x);
      y.register_hook([&received](const at::Tensor&) { ++received; });
      co_await ctx.backward(y.sum());
      CHECK(same((co_await ctx.gradients()).find(x), leaf(1, {3}).detach() * 3));
      CHECK(same(co_await weight.call<&gradient_of>(), x.detach() * 2));
    });
    CHECK(received == 1);
    CHECK(co_await there.call<&hooked::calls>() == 1);
  });
}

class table {
 public:
  table() : weight_(leaf(1, {6, 4})) {}
  at::Tensor look_up(const at::Tensor& ids) {
    return at::embedding(weight_, ids, -1, false, /*sparse=*/true);
  }
  at::Tensor weight() { return weight_; }

 private:
  at::Tensor weight_;
};

TEST_CASE("autograd service: sparse gradients stay sparse, and sparse tensors travel") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor ids = at::tensor({1, 3, 3, 5}, at::kLong);
    const at::Tensor lw = leaf(1, {6, 4});
    at::embedding(lw, ids, -1, false, true).mul(2).sum().backward();
    const auto there = me.peer(1).make<table>();
    const auto weight = there.remote<&table::weight>();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor rows = co_await there.call<&table::look_up>(ids);
      const at::Tensor loss = rows.mul(2).sum();
      co_await ctx.backward(loss, {.retention = graph_retention::retain});
      const at::Tensor g = co_await weight.call<&gradient_of>();
      CHECK(g.is_sparse());
      CHECK(at::equal(g.to_dense(), lw.grad().to_dense()));
      co_await ctx.backward(loss);
      CHECK(at::equal((co_await weight.call<&gradient_of>()).to_dense(), lw.grad().to_dense() * 2));
    });
    const at::Tensor a = leaf(2, {3, 3}).detach().to_sparse().set_requires_grad(true);
    const at::Tensor b = leaf(3, {3, 3}).detach().to_sparse().set_requires_grad(true);
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor sum = co_await me.peer(1).call<&add>(a, b);
      CHECK(sum.is_sparse());
      co_await ctx.backward(at::_sparse_sum(sum));
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.find(a).is_sparse());
      const at::Tensor la = twin(a), lb = twin(b);
      at::_sparse_sum(la + lb).backward();
      CHECK(at::equal(gradients.find(a).to_dense(), la.grad().to_dense()));
      CHECK(at::equal(gradients.find(b).to_dense(), lb.grad().to_dense()));
    });
  });
}

TEST_CASE("autograd service: what is in .grad stays as it is") {
  run_workers(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    a.mutable_grad() = at::full({3}, 77.0);
    co_await check_sum(me, [&](at::Tensor x, at::Tensor y) { return me.peer(1).call<&add>(x, y); });
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      co_await ctx.backward((co_await me.peer(1).call<&add>(a, b)).sum());
    });
    CHECK(same(a.grad(), at::full({3}, 77.0)));
    CHECK_FALSE(b.grad().defined());
  });
}

asio::awaitable<void> train(worker& me, rref<at::Tensor> weight, int scale, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor own = leaf(scale, {3});
      const at::Tensor y = co_await weight.owner().call<&fetch_and_mul>(weight, own);
      co_await ctx.backward((y * scale).sum());
      const at::Tensor expected = own.detach() * scale;
      if (!same(co_await weight.call<&gradient_of>(), expected)) {
        throw std::runtime_error("gradients of another context");
      }
    });
  }
}

TEST_CASE("autograd service: contexts of several trainers on one parameter stay apart") {
  for (const unsigned io_threads : io_ways()) {
    run_workers(4, over::tcp, with_io_threads(io_threads),
                [](workers& all, worker& me) -> asio::awaitable<void> {
                  const auto weight = me.share(leaf(9, {3}));
                  std::vector<weft::future<void>> trainers;
                  for (const std::uint32_t r : {1u, 2u, 3u}) {
                    trainers.push_back(me.peer(r).start<&train>(weight, static_cast<int>(r), 30));
                  }
                  for (auto& t : trainers) co_await std::move(t);
                  CHECK(co_await all_forgotten(all));
                });
  }
}

asio::awaitable<void> begin_a_pass(worker& me, at::Tensor x, rref<at::Tensor> weight) {
  const context ctx = weft::autograd::this_context(me);
  const at::Tensor y = co_await weight.owner().call<&fetch_and_mul>(weight, x.detach());
  co_await ctx.backward(y.sum());
}

TEST_CASE("autograd service: a function can begin a pass of its own in the caller's context") {
  run_workers(
      3, over::tcp, with_io_threads(1), [](workers& all, worker& me) -> asio::awaitable<void> {
        const at::Tensor w = leaf(1, {3}), x = leaf(2, {3});
        const auto weight = me.share(w);
        for (int i = 0; i < 20; ++i) {
          co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
            // The end of these passes comes from workers 1 and 2, the reply may overtake
            // it.
            co_await me.peer(1).call<&begin_a_pass>(x, weight);
            co_await me.peer(2).call<&begin_a_pass>(x, weight);
            co_await ctx.backward((w * x).sum());
            CHECK(same((co_await ctx.gradients()).find(w), x.detach() * 3));
          });
        }
        CHECK(co_await all_forgotten(all));
      });
}

TEST_CASE("autograd service: a message may carry hundreds of tensors with grad") {
  run_workers(2, over::tcp, with_io_threads(1), [](workers&, worker& me) -> asio::awaitable<void> {
    std::vector<at::Tensor> many;
    for (int i = 0; i < 500; ++i) many.push_back(leaf(i, {2}));
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor all = co_await me.peer(1).call<&stack>(many);
      const at::Tensor weights = at::arange(1000, at::kFloat).reshape({500, 2});
      co_await ctx.backward((all * weights).sum());
      const auto gradients = co_await ctx.gradients();
      CHECK(gradients.size() == 500);
      bool right = true;
      for (int i = 0; i < 500; ++i) {
        right = right && same(gradients.find(many[static_cast<std::size_t>(i)]), weights[i]);
      }
      CHECK(right);
      // The same tensor several times in one message.
      const std::vector<at::Tensor> same_one(5, many[7]);
      co_await ctx.backward((co_await me.peer(1).call<&stack>(same_one)).sum());
      CHECK(same((co_await ctx.gradients()).find(many[7]), weights[7] + 5));
    });
  });
}

}  // namespace autograd_tests
