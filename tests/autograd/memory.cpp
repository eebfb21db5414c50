// SPDX-License-Identifier: BSL-1.0
// Whose memory a gradient is: its leaf's alone, not another leaf's, the user's or another
// context's.
#include "service_functions.hpp"
#include <weft/autograd/gradient_map.hpp>
#include <weft/autograd/service.hpp>

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

namespace autograd_tests {

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().is_alias_of(b.storage());
}

TEST_CASE("autograd memory: leaves of one call get gradients of their own, in every pass") {
  for (const auto [how, io_threads] : ways(2)) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_workers(
        2, how, with_io_threads(io_threads), [](workers& all, worker& me) -> asio::awaitable<void> {
          for (int round = 0; round < 10; ++round) {
            const at::Tensor a = leaf(1, {3, 3}), b = leaf(2, {3, 3});
            const at::Tensor once = (a.detach() + b.detach()) * 2;
            co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
              const at::Tensor c = co_await me.peer(1).call<&add>(a, b);
              const at::Tensor loss = (c * c).sum();
              for (int pass = 1; pass <= 4; ++pass) {
                co_await ctx.backward(loss, {.retention = graph_retention::retain});
                const auto gradients = co_await ctx.gradients();
                CHECK(same(gradients.find(a), once * pass));
                CHECK(same(gradients.find(b), once * pass));
                CHECK_FALSE(share_memory(gradients.find(a), gradients.find(b)));
              }
            });
          }
          CHECK(co_await all_forgotten(all));
        });
  }
}

TEST_CASE("autograd memory: the gradients that a user gives stay the user's") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3});
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor given = at::full({3}, 2.0);
      const at::Tensor far = co_await me.peer(1).call<&add>(a, b);
      for (const at::Tensor& root : {a + b, a, far}) {
        for (int pass = 0; pass < 3; ++pass) {
          const weft::autograd::backward_options how{.retention = graph_retention::retain,
                                                     .gradients = {given}};
          co_await ctx.backward(root, how);
          CHECK(same(given, at::full({3}, 2.0)));
        }
      }
      const auto gradients = co_await ctx.gradients();
      CHECK(same(gradients.find(a), at::full({3}, 18.0)));
      CHECK(same(gradients.find(b), at::full({3}, 12.0)));
      CHECK_FALSE(share_memory(gradients.find(a), given));
      CHECK_FALSE(share_memory(gradients.find(b), given));
    });
  });
}

/// Where the gradients of the running context lie here.
asio::awaitable<std::vector<std::uint64_t>> places_of_gradients(worker& me) {
  std::vector<std::uint64_t> out;
  const auto gradients = co_await weft::autograd::this_context(me).gradients();
  for (const auto& each : gradients.entries()) {
    out.push_back(reinterpret_cast<std::uintptr_t>(each.gradient.storage().data()));
  }
  co_return out;
}

TEST_CASE("autograd memory: one gradient for two workers is copied, also inside one process") {
  workers_everywhere(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto there1 = me.peer(1).make<pair_of_parameters>(1);
    const auto there2 = me.peer(2).make<pair_of_parameters>(2);
    const auto p1 = there1.remote<&pair_of_parameters::first>();
    const auto p2 = there2.remote<&pair_of_parameters::first>();
    for (int round = 0; round < 10; ++round) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor x1 = co_await p1.to_here(), x2 = co_await p2.to_here();
        const at::Tensor sum = x1 + x2, given = at::full({3, 3}, 2.0);
        for (int pass = 1; pass <= 3; ++pass) {
          co_await ctx.backward(sum, {.retention = graph_retention::retain, .gradients = {given}});
          CHECK(same(co_await p1.call<&gradient_of>(), at::full({3, 3}, 2.0 * pass)));
          CHECK(same(co_await p2.call<&gradient_of>(), at::full({3, 3}, 2.0 * pass)));
          CHECK(same(given, at::full({3, 3}, 2.0)));
        }
        const auto at1 = co_await me.peer(1).call<&places_of_gradients>();
        const auto at2 = co_await me.peer(2).call<&places_of_gradients>();
        REQUIRE(at1.size() == 1);
        REQUIRE(at2.size() == 1);
        CHECK(at1 != at2);
      });
    }
  });
}

/// y = x; its backward gives what somebody else sees too.
struct giver : torch::autograd::Function<giver> {
  static inline at::Tensor kept;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    return {kept.detach()};
  }
};

TEST_CASE("autograd memory: what a node, a hook or another context still holds is copied") {
  run_workers(1, [](workers&, worker& me) -> asio::awaitable<void> {
    giver::kept = at::full({3}, 3.0);
    const at::Tensor a = leaf(1, {3}), b = leaf(2, {3}), c = leaf(3, {3});
    const at::Tensor hooked = at::full({3}, 5.0);
    b.register_hook([&](const at::Tensor&) { return hooked.view({3}); });
    at::Tensor seen;
    c.register_hook([&](const at::Tensor& g) { seen = at::Tensor(g.detach()); });
    const at::Tensor loss = giver::apply(a).sum() + b.sum() + (c * 1).sum();
    std::vector<at::Tensor> of_a;
    for (int round = 0; round < 2; ++round) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        for (int pass = 1; pass <= 3; ++pass) {
          co_await ctx.backward(loss, {.retention = graph_retention::retain});
          const auto gradients = co_await ctx.gradients();
          CHECK(same(gradients.find(a), at::full({3}, 3.0 * pass)));
          CHECK(same(gradients.find(b), at::full({3}, 5.0 * pass)));
          CHECK(same(gradients.find(c), at::full({3}, 1.0 * pass)));
          CHECK(same(seen, at::ones({3})));
        }
        of_a.push_back((co_await ctx.gradients()).find(a));
      });
    }
    CHECK_FALSE(share_memory(of_a[0], of_a[1]));
    CHECK(same(giver::kept, at::full({3}, 3.0)));
    CHECK(same(hooked, at::full({3}, 5.0)));
    giver::kept = at::Tensor();
  });
}

// ── gradient_map ──

using weft::autograd::gradient_map;

TEST_CASE("gradient map: what nobody else holds is taken over without a copy") {
  const at::Tensor variable = at::zeros({4});
  gradient_map map;
  at::Tensor g = at::ones({4});
  const void* const place = g.data_ptr();
  map.accumulate(variable, std::move(g));
  CHECK(map.find(variable).data_ptr() == place);

  // What transposes and sums return is a view of what nobody has any more.
  const at::Tensor square = at::zeros({3, 2});
  gradient_map turned;
  at::Tensor v = at::ones({2, 3}).view({3, 2});
  REQUIRE(v.is_view());
  const void* const seen = v.data_ptr();
  turned.accumulate(square, v);
  v = at::Tensor();
  CHECK(turned.find(square).data_ptr() == seen);
  CHECK(turned.find(square).storage().use_count() == 1);

  gradient_map sparse;
  at::Tensor s = at::_sparse_coo_tensor_unsafe(at::zeros({1, 2}, at::kLong), at::ones({2, 4}),
                                               {3, 4}, at::TensorOptions().layout(at::kSparse));
  const void* const values = s._values().data_ptr();
  const at::Tensor rows = at::zeros({3, 4});
  sparse.accumulate(rows, std::move(s));
  CHECK(sparse.find(rows)._values().data_ptr() == values);
}

TEST_CASE("gradient map: memory that is seen elsewhere is copied, of sparse ones each part") {
  const at::Tensor variable = at::zeros({4}), rows = at::zeros({3, 4});
  {
    gradient_map map;
    const at::Tensor users = at::ones({4});
    map.accumulate(variable, users.detach());
    map.accumulate(variable, at::ones({4}));
    CHECK(at::equal(users, at::ones({4})));
  }
  {
    gradient_map map;
    const at::Tensor whole = at::ones({8});
    map.accumulate(variable, whole.narrow(0, 4, 4));
    map.accumulate(variable, at::ones({4}));
    CHECK(at::equal(whole, at::ones({8})));
  }
  {
    // Two views of what nobody else has, and a view with an alias.
    gradient_map map;
    const at::Tensor other = at::zeros({4}), aliased = at::zeros({4});
    at::Tensor whole = at::ones({2, 2});
    at::Tensor first = whole.view({4}), second = whole.view({4});
    whole = at::Tensor();
    map.accumulate(variable, first);
    first = at::Tensor();
    map.accumulate(other, second);
    at::Tensor view = at::ones({2, 2}).view({4});
    const at::Tensor alias = view.detach();
    map.accumulate(aliased, view);
    map.accumulate(variable, at::ones({4}));
    map.accumulate(aliased, at::ones({4}));
    CHECK(at::equal(map.find(variable), at::full({4}, 2.0)));
    CHECK(at::equal(map.find(other), at::ones({4})));
    CHECK(at::equal(alias, at::ones({4})));
  }
  {
    // The last part of a whole does not keep all of it.
    gradient_map map;
    at::Tensor part = at::ones({2, 4}).narrow(0, 0, 1).view({4});
    map.accumulate(variable, part);
    part = at::Tensor();
    CHECK(map.find(variable).storage().nbytes() == 4 * sizeof(float));
  }
  for (const bool indices_shared : {true, false}) {
    gradient_map map;
    const at::Tensor indices = at::zeros({1, 2}, at::kLong), values = at::ones({2, 4});
    map.accumulate(
        rows, at::_sparse_coo_tensor_unsafe(indices_shared ? indices.detach() : indices.clone(),
                                            indices_shared ? values.clone() : values.detach(),
                                            {3, 4}, at::TensorOptions().layout(at::kSparse)));
    const at::Tensor sum = map.find(rows);
    CHECK_FALSE(sum._indices().storage().is_alias_of(indices.storage()));
    CHECK_FALSE(sum._values().storage().is_alias_of(values.storage()));
  }
}

}  // namespace autograd_tests
