// SPDX-License-Identifier: BSL-1.0
// Our executor against libtorch's own engine, on one worker.

#include <weft/autograd/executor.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace weft::autograd;
using torch::autograd::variable_list;

at::Tensor numbers(at::IntArrayRef sizes, double first = 1, at::ScalarType dtype = at::kFloat) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return (at::arange(n, dtype) * 0.37 + first).reshape(sizes);
}
at::Tensor leaf(at::IntArrayRef sizes, double first = 1, at::ScalarType dtype = at::kFloat) {
  return numbers(sizes, first, dtype).detach().requires_grad_();
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.layout() != b.layout() || a.scalar_type() != b.scalar_type()) return false;
  if (a.is_sparse())
    return same(a.coalesce().indices(), b.coalesce().indices()) &&
           same(a.coalesce().values(), b.coalesce().values());
  return a.sizes() == b.sizes() && a.strides() == b.strides() && at::equal(a, b);
}

struct built {
  variable_list leaves;
  variable_list roots;
  variable_list gradients = {};
};
using builder = std::function<built()>;

gradient_map ours(const built& b, graph_retention retention = graph_retention::release) {
  gradient_map map;
  evaluate_local(roots_of(b.roots, b.gradients), retention, map);
  return map;
}

/// Builds twice, runs `passes` passes with each engine, compares every leaf.
void compare(const builder& build, int passes = 1) {
  const built theirs = build();
  for (int i = 0; i < passes; ++i) {
    torch::autograd::backward(theirs.roots, theirs.gradients, i + 1 < passes);
  }
  const built mine = build();
  gradient_map map;
  for (int i = 0; i < passes; ++i) {
    evaluate_local(roots_of(mine.roots, mine.gradients),
                   i + 1 < passes ? graph_retention::retain : graph_retention::release, map);
  }
  std::size_t with_gradient = 0;
  for (std::size_t i = 0; i < mine.leaves.size(); ++i) {
    CAPTURE(i);
    CHECK(!mine.leaves[i].grad().defined());
    CHECK(same(map.find(mine.leaves[i]), theirs.leaves[i].grad()));
    with_gradient += theirs.leaves[i].grad().defined() ? 1U : 0U;
  }
  CHECK(map.size() == with_gradient);  // no extra keys
  CHECK(with_gradient > 0);
}

/// Scales by 3, but returns as gradient whatever it is told to.
struct told : torch::autograd::Function<told> {
  static std::function<variable_list(const variable_list&)> gradient;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 3;
  }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list grads) {
    return gradient(grads);
  }
};
std::function<variable_list(const variable_list&)> told::gradient;

struct counting_pre_hook : torch::autograd::FunctionPreHook {
  explicit counting_pre_hook(std::shared_ptr<int> n) : count(std::move(n)) {}
  variable_list operator()(const variable_list& grads) override {
    ++*count;
    variable_list doubled;
    for (const auto& g : grads) doubled.push_back(g.defined() ? g * 2 : g);
    return doubled;
  }
  std::shared_ptr<int> count;
};
struct counting_post_hook : torch::autograd::FunctionPostHook {
  explicit counting_post_hook(std::shared_ptr<int> n) : count(std::move(n)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    *count += static_cast<int>(inputs.size());
    variable_list scaled;
    for (const auto& o : outputs) scaled.push_back(o.defined() ? o * 5 : o);
    return scaled;
  }
  std::shared_ptr<int> count;
};

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("executor: matmul, broadcasting and reuse equal libtorch's engine") {
  compare([] {
    const auto w = leaf({4, 3});
    const auto b = leaf({3}, -2);
    const auto x = leaf({5, 4}, 0.5);
    const auto h = (x.matmul(w) + b).tanh();
    return built{{w, b, x}, {(h * h + h.matmul(w.t()).sum()).mean()}};
  });
}

TEST_CASE("executor: in-place operations on views equal libtorch's engine") {
  compare([] {
    const auto a = leaf({4, 4});
    const auto b = leaf({4}, 3);
    auto x = a * 2;
    x.select(0, 1).mul_(b);
    x.narrow(1, 1, 2).add_(b.narrow(0, 0, 2));
    const auto view = x.t().select(0, 2);
    view.copy_(b * b);
    return built{{a, b}, {(x.relu_() * a).sum()}};
  });
}

TEST_CASE("executor: sparse gradients, alone and meeting dense ones") {
  const auto indices = at::tensor({0, 2, 2, 1}, at::kLong);
  for (int dense_first = 0; dense_first < 3; ++dense_first) {
    CAPTURE(dense_first);
    compare(
        [&] {
          const auto w = leaf({3, 2});
          const auto sparse = at::embedding(w, indices, -1, false, true).sin().sum();
          if (dense_first == 0) return built{{w}, {sparse}};
          const auto dense = (w * w).sum();
          return built{{w}, {dense_first == 1 ? dense + sparse : sparse + dense}};
        },
        2);
  }
  compare([&] {  // two sparse ones in one leaf
    const auto w = leaf({3, 2});
    return built{{w},
                 {(at::embedding(w, indices, -1, false, true) *
                   at::embedding(w, indices.flip(0), -1, false, true))
                      .sum()}};
  });
}

TEST_CASE("executor: several passes over a retained graph add up") {
  compare(
      [] {
        const auto w = leaf({3, 3});
        return built{{w}, {w.matmul(w).exp().mean()}};
      },
      5);
}

TEST_CASE("executor: several roots, given gradients, the same root twice") {
  compare([] {
    const auto a = leaf({2, 3});
    const auto inner = (a * a).sum();
    const auto outer = (inner * a).sum();  // one root below another
    const auto parts = (a * 2).unbind(0);  // two outputs of one node
    return built{{a},
                 {inner, outer, parts[0], parts[1], inner},
                 {{}, {}, numbers({3}), numbers({3}, 9), at::full({}, 4.0F)}};
  });
}

TEST_CASE("executor: a leaf as root, and unused leaves") {
  compare([] {
    const auto a = leaf({});
    const auto unused = leaf({2});
    return built{{a, unused}, {a, a * a}};
  });
}

TEST_CASE("executor: different dtypes, complex numbers, half precision") {
  compare([] {
    const auto a = leaf({3}, 1, at::kFloat);
    const auto b = leaf({3}, 2, at::kDouble);
    const auto c = leaf({3}, 3, at::kBFloat16);
    const auto z = at::complex(a, a * 2);
    return built{{a, b, c}, {(a * b).sum() + (c * a).sum() + z.abs().sum()}};
  });
}

TEST_CASE("executor: undefined gradients pass through functions") {
  told::gradient = [](const variable_list&) { return variable_list{at::Tensor()}; };
  compare([] {
    const auto a = leaf({3});
    const auto b = leaf({4, 3});
    const auto c = leaf({3}, 7);
    const auto cut = told::apply((a * c).exp());  // gives no gradient
    return built{{a, b, c}, {(b.unbind(0)[2] * cut).sum() + c.split(2)[0].sum()}};
  });
}

TEST_CASE("executor: gradients are reduced and cast to what the variable needs, or refused") {
  told::gradient = [](const variable_list& g) {
    return variable_list{at::ones({4, 2, 3}, at::kDouble) * g[0].to(at::kDouble)};
  };
  compare([] {
    const auto a = leaf({2, 3});
    return built{{a}, {(told::apply(a * 2) * 3).sum()}};
  });

  told::gradient = [](const variable_list&) { return variable_list{at::ones({5})}; };
  const auto run = [] {
    const auto a = leaf({2, 3});
    return built{{a}, {told::apply(a * 2).sum()}};
  };
  const auto text = message_of([&] { ours(run()); });
  CHECK(text.find("invalid gradient") != std::string::npos);
  CHECK(text.find("told") != std::string::npos);
}

TEST_CASE("executor: tensor hooks and retained gradients of inner tensors") {
  std::vector<at::Tensor> inner;
  compare([&] {
    const auto a = leaf({3});
    a.register_hook([](const at::Tensor& g) { return g * 10; });
    const auto m = a * a;
    m.retain_grad();
    m.register_hook([](const at::Tensor& g) { return g + 1; });
    inner.push_back(m);
    return built{{a}, {m.sum()}};
  });
  REQUIRE(inner.size() == 2);
  CHECK(inner[0].grad().defined());
  CHECK(same(inner[0].grad(), inner[1].grad()));
}

TEST_CASE("executor: pre hooks and post hooks, of functions and of leaves") {
  const auto pre = std::make_shared<int>(0);
  const auto post = std::make_shared<int>(0);
  std::vector<std::shared_ptr<torch::autograd::Node>> keep;
  const auto build = [&] {
    const auto a = leaf({3});
    const auto b = leaf({3}, 4);
    const auto m = a * b;
    m.grad_fn()->add_pre_hook(std::make_unique<counting_pre_hook>(pre));
    m.grad_fn()->add_post_hook(std::make_unique<counting_post_hook>(post));
    keep.push_back(torch::autograd::impl::grad_accumulator(a));
    keep.back()->add_pre_hook(std::make_unique<counting_pre_hook>(pre));
    keep.back()->add_post_hook(std::make_unique<counting_post_hook>(post));
    return built{{a, b}, {m.sum()}};
  };
  compare(build, 2);
  CHECK(*pre == 8);
  CHECK(*post == 8);
}

TEST_CASE("executor: a gradient nobody else holds is taken over, another is copied") {
  for (const bool with_post_hook : {false, true}) {
    CAPTURE(with_post_hook);
    const void* made = nullptr;
    at::Tensor kept;
    const auto a = leaf({3});
    const auto count = std::make_shared<int>(0);
    const auto accumulator = torch::autograd::impl::grad_accumulator(a);
    if (with_post_hook) accumulator->add_post_hook(std::make_unique<counting_post_hook>(count));

    told::gradient = [&](const variable_list&) {
      auto g = at::ones({3});
      made = g.data_ptr();
      return variable_list{std::move(g)};
    };
    auto map = ours({{a}, {told::apply(a).sum()}});
    CHECK(map.find(a).data_ptr() == made);

    told::gradient = [&](const variable_list&) {
      kept = at::ones({3});
      return variable_list{kept};
    };
    map = ours({{a}, {told::apply(a).sum()}});
    CHECK(map.find(a).data_ptr() != kept.data_ptr());
  }
}

TEST_CASE("executor: sums in place never write to what somebody else holds") {
  enum class held { tensor, view, storage };
  for (const held how : {held::tensor, held::view, held::storage}) {
    for (const bool told_first : {false, true}) {
      CAPTURE(told_first);
      at::Tensor kept;
      told::gradient = [&](const variable_list&) {
        kept = at::ones({3});
        if (how == held::view) return variable_list{kept.view({3})};
        if (how == held::storage) return variable_list{kept.detach()};
        return variable_list{kept};
      };
      const auto a = leaf({3});
      const auto m = a * 1;
      // What was made last runs first, so its gradient is the one that others are added to.
      const auto early = told_first ? m * 2 : told::apply(m);
      const auto late = told_first ? told::apply(m) : m * 2;
      const auto map = ours({{a}, {(early + late).sum()}});
      CHECK(at::equal(kept, at::ones({3})));
      CHECK(at::equal(map.find(a), at::full({3}, 3.0F)));
    }
  }
}

TEST_CASE("executor: an error stops the pass, names the node, and changes nothing") {
  told::gradient = [](const variable_list&) -> variable_list {
    throw std::runtime_error("switch is off");
  };
  const auto a = leaf({3});
  const auto b = leaf({3}, 2);
  const built graph{{a, b}, {(b * b).sum() + told::apply(a).sum()}};

  const send_table none;
  local_graph nodes(none);
  const auto roots = roots_of(graph.roots);
  wave plan({0, 0, 0}, 0, 1, graph_retention::retain);
  plan.step(wave_input::begin{{nodes.index(roots[0].edge.function)}}, nodes);
  local_executor executor(nodes, plan);
  executor.seed(roots[0]);
  CHECK(executor.evaluate_ready([](outgoing_gradients&&) {}) == executor_status::failed);
  CHECK(executor.failure().text == "switch is off");
  CHECK(executor.failure().node.find("told") != std::string::npos);
  CHECK_THROWS_AS(std::rethrow_exception(executor.failure().cause), std::runtime_error);

  gradient_map map;
  CHECK_THROWS_AS(evaluate_local(roots_of(graph.roots), graph_retention::retain, map),
                  std::runtime_error);
  CHECK(map.empty());
  told::gradient = [](const variable_list& g) { return variable_list{g[0] * 3}; };
  evaluate_local(roots_of(graph.roots), graph_retention::retain, map);
  CHECK(map.size() == 2);
}

TEST_CASE("executor: a second pass over released nodes is libtorch's own error") {
  const auto build = [] {
    const auto a = leaf({3});
    return built{{a}, {(a * a).exp().sum()}};
  };
  const auto theirs = build();
  torch::autograd::backward(theirs.roots);
  const auto mine = build();
  ours(mine);
  const auto expected = message_of([&] { torch::autograd::backward(theirs.roots); });
  CHECK(expected.find("second time") != std::string::npos);
  CHECK(message_of([&] { ours(mine); }) == expected);
}

TEST_CASE("executor: anomaly mode finds NaN and names the node") {
  const auto a = at::zeros({2}).requires_grad_();
  const auto loss = (a.sqrt() * 0).sum();
  ours({{a}, {loss}}, graph_retention::retain);
  const torch::autograd::DetectAnomalyGuard guard;
  const send_table none;
  local_graph nodes(none);
  const auto roots = roots_of(std::vector<at::Tensor>{loss});
  wave plan({0, 0, 0}, 0, 1);
  plan.step(wave_input::begin{{nodes.index(roots[0].edge.function)}}, nodes);
  local_executor executor(nodes, plan);
  executor.seed(roots[0]);
  REQUIRE(executor.evaluate_ready([](outgoing_gradients&&) {}) == executor_status::failed);
  CHECK(executor.failure().node == "SqrtBackward0");
  CHECK(executor.failure().text.find("NaN") != std::string::npos);
}

TEST_CASE("executor: stops before the next node when told to") {
  const send_table none;
  local_graph nodes(none);
  const auto a = leaf({3});
  const auto roots = roots_of(std::vector<at::Tensor>{(a * a).sum()});
  wave plan({0, 0, 0}, 0, 1);
  plan.step(wave_input::begin{{nodes.index(roots[0].edge.function)}}, nodes);
  local_executor executor(nodes, plan);
  executor.seed(roots[0]);
  executor.stop();
  CHECK(executor.evaluate_ready([](outgoing_gradients&&) {}) == executor_status::stopped);
  CHECK(executor.nodes_run() == 0);
}

TEST_CASE("executor: gradients are off while nodes run, and as before afterwards") {
  at::Tensor seen;
  told::gradient = [&](const variable_list& g) {
    CHECK(!at::GradMode::is_enabled());
    seen = g[0] * 3;
    return variable_list{seen};
  };
  const auto a = leaf({3});
  const auto map = ours({{a}, {told::apply(a * a).sum()}});
  CHECK(at::GradMode::is_enabled());
  CHECK(!map.find(a).requires_grad());
}

TEST_CASE("executor: a chain of a hundred thousand nodes") {
  compare([] {
    const auto a = leaf({1}, 1, at::kDouble);
    auto x = a.clone();
    for (int i = 0; i < 100000; ++i) x = x + 1;
    return built{{a}, {x.sum()}};
  });
}

TEST_CASE("roots_of: refuses in a sentence what cannot be a root") {
  const auto a = leaf({3});
  const auto refusal = [](const variable_list& t, const variable_list& g = {}) {
    return message_of([&] { roots_of(t, g); });
  };
  CHECK(refusal({}).find("no root") != std::string::npos);
  CHECK(refusal({at::Tensor()}).find("undefined") != std::string::npos);
  CHECK(refusal({at::ones({})}).find("does not require grad") != std::string::npos);
  CHECK(refusal({a * 2}).find("not a scalar") != std::string::npos);
  CHECK(refusal({a * 2}, {at::ones({2})}).find("shape") != std::string::npos);
  CHECK(refusal({a * 2}, {at::ones({3}, at::kDouble)}).find("dtype") != std::string::npos);
  CHECK(refusal({a * 2}, {at::ones({3}), at::ones({3})}).find("2 gradients") != std::string::npos);
  CHECK(refusal({a.sum()}).empty());
}

TEST_CASE("gradient_map: keeps the order of first meeting, adds in place what nobody holds") {
  gradient_map map;
  const auto a = leaf({2});
  const auto b = leaf({2}, 5);
  map.accumulate(b, at::ones({2}));
  map.accumulate(a, at::ones({2}));
  const void* const place = map.find(b).const_data_ptr();
  gradient_map pass;
  pass.accumulate(b, at::full({2}, 2.0F));
  pass.accumulate(a, at::Tensor());
  map.merge(std::move(pass));
  CHECK(pass.empty());  // NOLINT: that merging takes all of it is what is tested
  REQUIRE(map.size() == 2);
  CHECK(map.entries()[0].variable.is_same(b));
  CHECK(map.find(b).const_data_ptr() == place);
  const auto held = map.find(b);
  CHECK(at::equal(held, at::full({2}, 3.0F)));
  gradient_map another;
  another.accumulate(b, at::ones({2}));
  map.merge(std::move(another));
  CHECK(at::equal(map.find(b), at::full({2}, 4.0F)));
  CHECK(at::equal(held, at::full({2}, 3.0F)));  // a step may still read it
  CHECK(!map.find(leaf({2})).defined());
}
