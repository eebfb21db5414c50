// SPDX-License-Identifier: BSL-1.0
// Tensors and gradients of calls that go on from worker to worker, behind results that are
// references.
#include "service_functions.hpp"

namespace autograd_tests {

rref<pair_of_parameters> parameters_on(worker& me, std::uint32_t rank, int seed) {
  return me.peer(rank).make<pair_of_parameters>(seed);
}
rref<pair_of_parameters> parameters_by_way_of(worker& me, std::uint32_t next, std::uint32_t last,
                                              int seed) {
  return me.peer(next).remote<&parameters_on>(last, seed);
}
/// All that the forms of tensors have, as they came.
struct mirror {
  std::vector<at::Tensor> same(std::vector<at::Tensor> all) { return all; }
  int how_many(const std::vector<at::Tensor>& all) { return static_cast<int>(all.size()); }
};
rref<mirror> mirror_on(worker& me, std::uint32_t rank) { return me.peer(rank).make<mirror>(); }

TEST_CASE("autograd leads on: gradients find their way through those who passed the call on") {
  workers_everywhere(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    const auto far = me.peer(1).remote<&parameters_by_way_of>(2u, 3u, 1);  // 1, then 2, then 3
    const auto weight = far.remote<&pair_of_parameters::first>();          // known on 1 and 2
    const at::Tensor x = leaf(3, {2, 3});
    const at::Tensor lx = twin(x), l1 = leaf(1, {3, 3}), l2 = leaf(2, {3, 3});
    (lx.matmul(l1) * 3 + lx.matmul(l1).matmul(l2)).sum().backward();
    co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
      const at::Tensor once = co_await far.call<&pair_of_parameters::use_first>(x);
      const auto stays = far.remote<&pair_of_parameters::use_both>(x);
      const at::Tensor y = once * 3 + co_await stays.to_here();
      CHECK(y.requires_grad());
      co_await ctx.backward(y.sum());
      CHECK(same((co_await ctx.gradients()).find(x), lx.grad()));
      CHECK(same(co_await weight.call<&gradient_of>(), l1.grad()));
      CHECK_FALSE(co_await far.call<&pair_of_parameters::grad_is_defined>());
    });
    CHECK(co_await all_forgotten(all));
  });
}

TEST_CASE("autograd leads on: without a context tensors arrive as they would directly") {
  workers_everywhere(3, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto far = me.peer(1).remote<&mirror_on>(2u);
    const at::Tensor base = at::arange(24, at::kInt).reshape({4, 6});
    const at::Tensor sparse =
        at::sparse_coo_tensor(at::tensor({0, 2, 1, 3}, at::kLong).reshape({2, 2}),
                              at::tensor({1.5, 2.5}, at::kDouble), {4, 4});
    const std::vector<at::Tensor> sent{base,
                                       base.slice(1, 1, 3),
                                       base.t(),
                                       at::empty({0, 3}),
                                       at::Tensor(),
                                       at::ones({2}, at::kBool),
                                       at::ones({}).expand({5}),
                                       sparse.coalesce(),
                                       at::ones({3}).set_requires_grad(true),
                                       base};
    const auto back = co_await far.call<&mirror::same>(sent);
    REQUIRE(back.size() == sent.size());
    for (std::size_t i = 0; i != sent.size(); ++i) {
      CAPTURE(i);
      REQUIRE(back[i].defined() == sent[i].defined());
      if (!sent[i].defined()) continue;
      CHECK((back[i].scalar_type() == sent[i].scalar_type()));
      CHECK((back[i].sizes() == sent[i].sizes()));
      CHECK(back[i].requires_grad() == sent[i].requires_grad());
      if (sent[i].is_sparse()) {
        CHECK(at::equal(back[i].to_dense(), sent[i].to_dense()));
      } else {
        CHECK(at::equal(back[i], sent[i]));
      }
    }
    CHECK(back[0].is_same(back[9]));
    CHECK(back[0].is_alias_of(back[2]));
    std::vector<at::Tensor> many;
    for (int i = 0; i < 400; ++i) many.push_back(at::full({2}, i));
    const auto all = co_await far.call<&mirror::same>(many);
    REQUIRE(all.size() == 400);
    for (std::size_t i = 0; i != 400; ++i) CHECK(at::equal(all[i], many[i]));
    // In between and at both ends nobody has another's memory.
    at::Tensor x = at::ones({3});
    auto back_again = co_await far.call<&mirror::same>(std::vector<at::Tensor>{x});
    back_again[0].zero_();
    CHECK(x.sum().item<float>() == 3);
  });
}

}  // namespace autograd_tests
