// SPDX-License-Identifier: BSL-1.0
// What libtorch's optimizers keep, after any gradients that they take: it loads again, and who has
// loaded it steps as libtorch does. Without workers, but for the last.
#include "layers.hpp"
#include <weft/optim/distributed.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace optim_states {
namespace {

using torch::optim::SGD;
using torch::optim::SGDOptions;

/// Gradients of a 4x3 parameter: dense, and as embeddings and masks leave them.
enum class kind { dense, rows, repeated_rows, cells, none };
constexpr kind kinds[] = {kind::dense, kind::rows, kind::repeated_rows, kind::cells, kind::none};

at::Tensor gradient(kind k, int step) {
  const at::Tensor dense = at::arange(12, at::kFloat).add(step).sin().reshape({4, 3});
  const auto rows = [&](at::Tensor at_rows) {
    return at::sparse_coo_tensor(at_rows.reshape({1, -1}), dense.narrow(0, 0, at_rows.size(0)),
                                 {4, 3}, at::TensorOptions());
  };
  switch (k) {
  case kind::dense:
    return dense;
  case kind::rows:
    return rows(at::tensor({1, 3}, at::kLong)).coalesce();
  case kind::repeated_rows:
    return rows(at::tensor({2, 0, 2}, at::kLong));
  case kind::cells:
    return dense.mul(dense.gt(0)).to_sparse();
  case kind::none:
    return {};
  }
  return {};
}

/// False: libtorch refuses that gradient.
template <class Optimizer>
bool step(Optimizer& o, kind k, int number) {
  o.param_groups().front().params()[0].mutable_grad() = gradient(k, number);
  try {
    o.step();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

/// How many states were loaded; of those, how many held something sparse.
struct counted {
  int loaded = 0, sparse = 0;
};

template <class Optimizer, class Options>
void check_all(const Options& options, counted& count) {
  const auto copy = [](const at::Tensor& t) { return t.detach().clone().set_requires_grad(true); };
  for (const kind first : kinds) {
    for (const kind second : kinds) {
      for (const kind third : kinds) {
        CAPTURE(static_cast<int>(first));
        CAPTURE(static_cast<int>(second));
        CAPTURE(static_cast<int>(third));
        std::vector<at::Tensor> mine{copy(at::ones({4, 3}))};
        Optimizer here(mine, options);
        if (!step(here, first, 1) || !step(here, second, 2)) continue;
        const auto state = weft::optim::detail::read_state(here, mine);
        std::vector<at::Tensor> others{copy(mine[0])};
        Optimizer there(others, options);
        weft::optim::detail::write_state(
            there, others, [&](std::size_t) -> const Options& { return options; }, state);
        ++count.loaded;
        for (const auto& [name, part] : state[0]) count.sparse += part.is_sparse() ? 1 : 0;
        // A step that throws may leave half of itself behind, so only the outcome is compared then.
        const bool steps = step(here, third, 3);
        CHECK(step(there, third, 3) == steps);
        if (!steps) continue;
        CHECK(at::equal(mine[0], others[0]));
        const auto now = weft::optim::detail::read_state(here, mine);
        const auto then = weft::optim::detail::read_state(there, others);
        REQUIRE(now[0].size() == then[0].size());
        for (const auto& [name, part] : now[0]) {
          CAPTURE(name);
          CHECK(then[0].at(name).layout() == part.layout());
          CHECK(at::equal(then[0].at(name).to_dense(), part.to_dense()));
        }
      }
    }
  }
}

TEST_CASE("optim states: all that libtorch keeps loads again, and goes on as it would") {
  using namespace torch::optim;
  counted of_sgd;
  for (const double weight_decay : {0.0, 0.1}) {
    check_all<SGD>(SGDOptions(0.1).weight_decay(weight_decay), of_sgd);
    check_all<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(weight_decay), of_sgd);
    check_all<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(weight_decay), of_sgd);
    check_all<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(weight_decay), of_sgd);
  }
  CHECK(of_sgd.sparse > 0);
  counted of_others;
  check_all<Adagrad>(AdagradOptions(0.1).lr_decay(0.1), of_others);
  check_all<Adagrad>(AdagradOptions(0.1).weight_decay(0.1), of_others);
  for (const bool on : {false, true}) {
    check_all<Adam>(AdamOptions(0.1).amsgrad(on), of_others);
    check_all<AdamW>(AdamWOptions(0.1).amsgrad(on), of_others);
    check_all<RMSprop>(RMSpropOptions(0.1).momentum(on ? 0.5 : 0).centered(on), of_others);
  }
  CHECK(of_others.loaded > 20);
  CHECK(of_others.sparse == 0);
}

/// What is said of a state whose only part is that.
template <class Optimizer, class Options>
std::string refused(const Options& options, weft::optim::parameter_state given) {
  std::vector<at::Tensor> one{at::ones({4, 3}).set_requires_grad(true)};
  Optimizer o(one, options);
  try {
    const auto same = [&](std::size_t) -> const Options& { return options; };
    weft::optim::detail::write_state(o, one, same, {std::move(given)});
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return {};
}

TEST_CASE("optim states: what libtorch never keeps is refused") {
  using namespace torch::optim;
  const std::string why = "of another shape or kind";
  const auto momentum = SGDOptions(0.1).momentum(0.9);
  const at::Tensor sparse = gradient(kind::rows, 1);
  CHECK(refused<SGD>(momentum, {{"momentum_buffer", sparse}}).empty());
  for (const at::Tensor& bad :
       {gradient(kind::dense, 1).to_sparse_csr(), gradient(kind::dense, 1).reshape({3, 4}),
        gradient(kind::cells, 1).t(), sparse.to(at::kComplexFloat)}) {
    CHECK(refused<SGD>(momentum, {{"momentum_buffer", bad}}).find(why) != std::string::npos);
  }
  CHECK(refused<Adagrad>(AdagradOptions(0.1),
                         {{"sum", sparse}, {"step", at::tensor(std::int64_t{1})}})
            .find(why) != std::string::npos);
  CHECK(refused<Adam>(
            AdamOptions(0.1),
            {{"exp_avg", sparse}, {"exp_avg_sq", sparse}, {"step", at::tensor(std::int64_t{1})}})
            .find(why) != std::string::npos);
}

TEST_CASE("optim states: sparse momentum is saved and loaded through a worker") {
  using namespace optim_tests;
  run_workers(2, [&](workers&, worker& me) -> asio::awaitable<void> {
    const at::Tensor own = at::ones({4, 3}).set_requires_grad(true);
    const auto options = SGDOptions(0.1).momentum(0.9);
    auto sgd = co_await weft::optim::distributed<SGD>::create(me, {me.share(own)}, options);
    const auto train = [&]() -> asio::awaitable<void> {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor rows = at::tensor({2, 0, 2}, at::kLong);
        co_await ctx.backward(at::embedding(own, rows, -1, false, true).sin().sum());
        co_await sgd.step(ctx);
      });
    };
    co_await train();
    const auto saved = co_await sgd.state_dict();
    REQUIRE(saved[0][0].at("momentum_buffer").is_sparse());
    const at::Tensor values = own.detach().clone();
    co_await train();
    const at::Tensor expected = own.detach().clone();
    own.set_data(values);
    co_await sgd.load_state_dict(saved);
    co_await train();
    CHECK(at::equal(own, expected));
  });
}

}  // namespace
}  // namespace optim_states
