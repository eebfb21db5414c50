// SPDX-License-Identifier: BSL-1.0
// Random graphs over one to six workers, by real calls: gradients equal those of one process.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <core/run_all.hpp>
#include <random>
#include <set>

namespace autograd_tests {

/// What a worker does with the leaves it is given: a straight-line program whose steps may call
/// other workers, which run a program of their own.
struct step_spec {
  enum class kind : std::uint8_t {
    add,
    sub,
    mul,
    matmul,
    twice,
    fragile,  // twice, by a node whose backward can be made to throw
    narrow_sum,
    stack_sum,
    expanded,
    view,
    call,      // elsewhere
    two_calls  // the same tensors to two workers
  };
  static constexpr std::uint32_t local_kinds = 10;
  kind what = kind::add;
  std::uint32_t left = 0, right = 0;    // earlier values
  std::uint32_t worker = 0, other = 0;  // of calls
  std::uint32_t program = 0;
};
struct program_spec {
  std::vector<step_spec> steps;
  std::vector<std::uint32_t> results;  // two values
};
struct graph_spec {
  std::vector<program_spec> programs;
  bool all_used = false;  // results have everything in them, so that FAST passes end
};

constexpr std::uint32_t arguments = 3;

/// A parameter of each worker for each program, made at first use. Also what one process uses.
class parameter_store {
 public:
  parameter_store() = default;
  at::Tensor of(std::uint32_t worker, std::uint32_t program, int kind) {
    const std::lock_guard hold(*lock_);
    at::Tensor& p = (*all_)[{worker, program}];
    if (!p.defined()) p = make(static_cast<int>(worker * 7 + program), kind);
    return p;
  }
  static at::Tensor make(int seed, int kind) {
    if (kind == 0) {
      const at::Tensor small = at::arange(9, at::kDouble).mul(5 + seed).remainder(3).sub(1);
      return small.reshape({3, 3}).set_requires_grad(true);
    }
    return at::arange(9, at::kFloat).mul(1.7 + seed).sin().reshape({3, 3}).set_requires_grad(true);
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, at::Tensor> all() {
    const std::lock_guard hold(*lock_);
    return *all_;
  }

 private:
  std::shared_ptr<std::mutex> lock_ = std::make_shared<std::mutex>();
  std::shared_ptr<std::map<std::pair<std::uint32_t, std::uint32_t>, at::Tensor>> all_ =
      std::make_shared<std::map<std::pair<std::uint32_t, std::uint32_t>, at::Tensor>>();
};
constexpr std::uint32_t most_workers = 6, one_process = most_workers;
/// One per worker, and one for the one process.
parameter_store& store_of(std::uint32_t worker) {
  static parameter_store stores[most_workers + 1];
  return stores[worker];
}

asio::awaitable<std::vector<at::Tensor>> evaluate(worker& me, graph_spec graph, std::uint32_t which,
                                                  std::vector<at::Tensor> values, int kind);

/// Runs a program; `Call` runs another one somewhere.
template <class Call>
asio::awaitable<std::vector<at::Tensor>> interpret(const graph_spec& graph, std::uint32_t which,
                                                   std::vector<at::Tensor> values,
                                                   at::Tensor parameter, const Call& call) {
  using kind = step_spec::kind;
  const program_spec& program = graph.programs[which];
  values.push_back(parameter);
  for (const step_spec& s : program.steps) {
    const at::Tensor a = values[s.left], b = values[s.right];
    switch (s.what) {
    case kind::add:
      values.push_back(a + b);
      break;
    case kind::sub:
      values.push_back(a - b);
      break;
    case kind::mul:
      values.push_back(a * b.remainder(2));
      break;
    case kind::matmul:
      values.push_back(a.matmul(b.remainder(2).detach()));
      break;
    case kind::twice:
      values.push_back(a * 2);
      break;
    case kind::fragile:
      values.push_back(fragile::apply(a));
      break;
    case kind::narrow_sum:
      values.push_back(a + b.narrow(0, 0, 1));
      break;
    case kind::stack_sum:
      values.push_back(at::stack({a, b}).sum(0));
      break;
    case kind::expanded:
      values.push_back(a.sum(0).expand({3, 3}));
      break;
    case kind::view:
      values.push_back(a.t());
      break;
    case kind::call: {
      const auto results = co_await call(s.worker, s.program, std::vector{a, b, a});
      values.insert(values.end(), results.begin(), results.end());
      break;
    }
    case kind::two_calls: {
      const auto one = co_await call(s.worker, s.program, std::vector{a, b, a});
      const auto two = co_await call(s.other, s.program, std::vector{a, b, a});
      values.push_back(one[0] + two[1]);
      values.push_back(one[1] + two[0]);
      break;
    }
    }
  }
  std::vector results{values[program.results[0]], values[program.results[1]]};
  if (graph.all_used) {
    for (const at::Tensor& v : values) results[0] = results[0] + v;
    results[1] = results[1] + results[0];
  }
  co_return results;
}

asio::awaitable<std::vector<at::Tensor>> evaluate(worker& me, graph_spec graph, std::uint32_t which,
                                                  std::vector<at::Tensor> values, int kind) {
  const auto call = [&](std::uint32_t to, std::uint32_t program,
                        std::vector<at::Tensor> with) -> asio::awaitable<std::vector<at::Tensor>> {
    return me.peer(to).call<&evaluate>(graph, program, std::move(with), kind);
  };
  co_return co_await interpret(graph, which, std::move(values),
                               store_of(me.rank()).of(me.rank(), which, kind), call);
}

/// The same in one process, with the parameters that `worker` would have.
asio::awaitable<std::vector<at::Tensor>> evaluate_here(graph_spec graph, std::uint32_t worker,
                                                       std::uint32_t which,
                                                       std::vector<at::Tensor> values, int kind) {
  const auto call = [&](std::uint32_t to, std::uint32_t program,
                        std::vector<at::Tensor> with) -> asio::awaitable<std::vector<at::Tensor>> {
    return evaluate_here(graph, to, program, std::move(with), kind);
  };
  co_return co_await interpret(graph, which, std::move(values),
                               store_of(one_process).of(worker, which, kind), call);
}

/// The gradient here of this worker's parameter for a program.
asio::awaitable<at::Tensor> stored_gradient(worker& me, std::uint32_t program, int kind) {
  const auto gradients = co_await weft::autograd::this_context(me).gradients();
  co_return gradients.find(store_of(me.rank()).of(me.rank(), program, kind));
}

graph_spec random_graph(std::mt19937& random, std::uint32_t world) {
  const auto up_to = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  graph_spec graph;
  const std::size_t count = 2 + up_to(4);
  for (std::size_t p = 0; p < count; ++p) {
    program_spec program;
    std::uint32_t values = arguments + 1;
    const std::size_t steps = 2 + up_to(5);
    for (std::size_t i = 0; i < steps; ++i) {
      step_spec s;
      s.left = up_to(values);
      s.right = up_to(values);
      // Programs call later ones only, so that they end.
      const bool calls = p + 1 < count && up_to(2) == 0;
      const std::uint32_t of_calls = step_spec::local_kinds + (up_to(3) == 0 ? 1 : 0);
      s.what = static_cast<step_spec::kind>(calls ? of_calls : up_to(step_spec::local_kinds));
      s.worker = up_to(world);
      s.other = up_to(world);
      if (calls) s.program = static_cast<std::uint32_t>(p + 1 + up_to(count - p - 1));
      program.steps.push_back(s);
      values += calls ? 2 : 1;
    }
    program.results = {up_to(values), values - 1};
    graph.programs.push_back(std::move(program));
  }
  return graph;
}

/// Where the gradients of this worker's leaves lie, in the running context.
asio::awaitable<std::vector<std::uint64_t>> gradient_places(worker& me) {
  std::vector<std::uint64_t> out;
  const auto gradients = co_await weft::autograd::this_context(me).gradients();
  for (const auto& each : gradients.entries()) {
    out.push_back(reinterpret_cast<std::uintptr_t>(each.gradient.storage().data()));
  }
  co_return out;
}

/// One graph with its leaves, and what one process makes of it.
struct sample {
  graph_spec graph;
  int kind = 0;  // 0: small integers, 1: floats
  std::vector<at::Tensor> leaves, twins, expected;
  bool both = false;  // results are roots
  at::Tensor given;   // undefined: sums are the roots
  int passes = 1;
  bool twice_derived = false;  // instead of passes: a second derivative
  weft::autograd::mode how{};
  std::vector<at::Tensor> second{};  // of the leaves; undefined where there is none
  bool breaks = false;               // a pass over it fails while `fragile` is broken

  /// Of the results that can be; each with the same given gradient, if there is one.
  std::vector<at::Tensor> roots_of(const std::vector<at::Tensor>& results) const {
    std::vector<at::Tensor> roots;
    for (std::size_t i = 0; i < (both ? 2u : 1u); ++i) {
      if (results[i].requires_grad()) {
        roots.push_back(given.defined() ? results[i] : results[i].sum());
      }
    }
    return roots;
  }
  std::vector<at::Tensor> gradients_for(const std::vector<at::Tensor>& roots) const {
    return given.defined() ? std::vector<at::Tensor>(roots.size(), given)
                           : std::vector<at::Tensor>();
  }
  /// Integers that doubles do not have, or floats whose sums depend on their order.
  bool is_inexact() const {
    const double most = kind == 0 ? 4503599627370496.0 : 1e4;
    std::vector<at::Tensor> all = second;
    for (const at::Tensor& t : twins) all.push_back(t.grad());
    for (const auto& [key, parameter] : store_of(one_process).all())
      all.push_back(parameter.grad());
    return std::any_of(all.begin(), all.end(), [most](const at::Tensor& t) {
      return t.defined() && !(t.abs().max().item<double>() * 4 < most);
    });
  }
  /// Of the leaves, those that have gradients.
  static std::vector<at::Tensor> inputs(const std::vector<at::Tensor>& of) {
    std::vector<at::Tensor> out;
    for (const at::Tensor& t : of) {
      if (t.requires_grad()) out.push_back(t);
    }
    return out;
  }
  at::Tensor norm_of(const std::vector<at::Tensor>& gradients) const {
    at::Tensor sum = at::zeros({}, leaves[0].options().requires_grad(false));
    for (const at::Tensor& g : gradients) {
      if (g.defined()) sum = sum + (g * g).sum();
    }
    return sum;
  }
  [[nodiscard]] bool agree(const at::Tensor& got, const at::Tensor& one_pass) const {
    return agree(got, one_pass, passes);
  }
  [[nodiscard]] bool agree(const at::Tensor& got, const at::Tensor& one_pass, int times) const {
    if (!got.defined() || !one_pass.defined()) return got.defined() == one_pass.defined();
    const at::Tensor wanted = one_pass * times;
    return kind == 0 ? same(got, wanted) : at::allclose(got, wanted, 1e-5, 1e-5);
  }
};

asio::awaitable<sample> random_sample(std::mt19937& random, std::uint32_t world) {
  sample s;
  s.graph = random_graph(random, world);
  s.kind = random() % 2 == 0 ? 0 : 1;
  s.graph.all_used = random() % 3 == 0;
  if (s.graph.all_used) s.how = weft::autograd::mode::fast;
  for (std::uint32_t w = 0; w <= most_workers; ++w) store_of(w) = parameter_store();
  for (std::uint32_t i = 0; i < arguments; ++i) {
    s.leaves.push_back(parameter_store::make(static_cast<int>(i) + 50, s.kind)
                           .set_requires_grad(i == 0 || random() % 3 != 0));
    s.twins.push_back(twin(s.leaves.back()));
  }
  s.both = random() % 2 == 0;
  s.passes = 1 + static_cast<int>(random() % 4);
  s.twice_derived = !s.graph.all_used && random() % 3 == 0;
  if (random() % 2 == 0) s.given = at::full_like(s.leaves[0].detach(), 2.0);
  s.expected = co_await evaluate_here(s.graph, 0, 0, s.twins, s.kind);
  const auto roots = s.roots_of(s.expected);
  if (roots.empty()) co_return s;
  const auto given = s.gradients_for(roots);
  fragile::broken = true;
  try {
    torch::autograd::backward(roots, given, true);
  } catch (const std::runtime_error&) {
    s.breaks = true;
  }
  fragile::broken = false;
  for (const auto& [key, parameter] : store_of(one_process).all()) parameter.mutable_grad().reset();
  for (const at::Tensor& t : s.twins) t.mutable_grad().reset();
  if (s.twice_derived) {
    const auto first = torch::autograd::grad(roots, s.inputs(s.twins), given, true, true, true);
    const auto norm = s.norm_of(first);
    s.second.resize(first.size());
    if (norm.requires_grad()) {
      s.second = torch::autograd::grad({norm}, s.inputs(s.twins), {}, true, false, true);
    }
  }
  torch::autograd::backward(roots, given);
  co_return s;
}

/// Contexts that are open at once wait here for each other.
struct meeting {
  std::size_t missing = 0;
  weft::intrusive_ptr<weft::event> complete = weft::make_intrusive<weft::event>();
  asio::awaitable<void> join() {
    if (--missing == 0) complete->set();
    co_await weft::event::async_wait(complete, asio::use_awaitable);
  }
};

/// A context of its own over the graph; where its gradients lie goes into `places`.
/// First and second derivatives by the leaves, which are not added to the context's gradients.
asio::awaitable<void> derive_twice(const context& ctx, const sample& s,
                                   const std::vector<at::Tensor>& roots) {
  using weft::autograd::gradient_graph;
  const auto inputs = sample::inputs(s.leaves);
  const auto first = co_await ctx.grad(
      roots, inputs, {.gradients = s.gradients_for(roots), .graph = gradient_graph::create});
  const at::Tensor norm = s.norm_of(first);
  if (!norm.requires_grad()) {
    for (const at::Tensor& t : s.second) CHECK_FALSE(t.defined());
    co_return;
  }
  const auto second = co_await ctx.grad(norm, inputs, {.retention = graph_retention::retain});
  REQUIRE(second.size() == s.second.size());
  for (std::size_t i = 0; i < second.size(); ++i) {
    REQUIRE(second[i].defined() == s.second[i].defined());
    if (!second[i].defined()) continue;
    CHECK((s.kind == 0 ? same(second[i], s.second[i])
                       : at::allclose(second[i], s.second[i], 1e-4, 1e-4)));
  }
}

asio::awaitable<void> train_once(worker& me, const sample& s, std::vector<std::uint64_t>& places,
                                 meeting& before_release) {
  const auto body = [&](context ctx) -> asio::awaitable<void> {
    const auto results = co_await evaluate(me, s.graph, 0, s.leaves, s.kind);
    const auto roots = s.roots_of(results);
    if (s.twice_derived) co_await derive_twice(ctx, s, roots);
    for (int i = 0; i < s.passes; ++i) {
      const auto kept = i + 1 < s.passes ? graph_retention::retain : graph_retention::release;
      co_await ctx.backward(roots, {.retention = kept, .gradients = s.gradients_for(roots)});
    }
    const auto gradients = co_await ctx.gradients();
    for (std::uint32_t i = 0; i < arguments; ++i) {
      CHECK(s.agree(gradients.find(s.leaves[i]), s.twins[i].grad()));
    }
    std::size_t compared = 0;
    for (std::uint32_t w = 0; w < me.world_size(); ++w) {
      const auto used = store_of(w).all();
      for (const auto& [key, parameter] : used) {
        const at::Tensor got = co_await me.peer(w).call<&stored_gradient>(key.second, s.kind);
        CHECK(s.agree(got, store_of(one_process).of(w, key.second, s.kind).grad()));
        ++compared;
      }
      const auto there = co_await me.peer(w).call<&gradient_places>();
      places.insert(places.end(), there.begin(), there.end());
    }
    CHECK(compared == store_of(one_process).all().size());
    co_await before_release.join();
  };
  co_await weft::autograd::with_context(me, body, {.mode = s.how});
}

/// A pass that fails shows nothing, here or elsewhere, and the graph is as it was.
asio::awaitable<void> fail_once(worker& me, const sample& s) {
  const auto body = [&](context ctx) -> asio::awaitable<void> {
    const auto results = co_await evaluate(me, s.graph, 0, s.leaves, s.kind);
    const auto roots = s.roots_of(results);
    const weft::autograd::backward_options again{.retention = graph_retention::retain,
                                                 .gradients = s.gradients_for(roots)};
    fragile::broken = true;
    const auto e = co_await thrown_by(ctx.backward(roots, again));
    fragile::broken = false;
    CHECK(e == errc::autograd_pass_aborted);
    for (std::uint32_t w = 0; w < me.world_size(); ++w) {
      CHECK((co_await me.peer(w).call<&gradients_here>()) == 0);
    }
    co_await ctx.backward(roots, again);
    const auto gradients = co_await ctx.gradients();
    for (std::uint32_t i = 0; i < arguments; ++i) {
      CHECK(s.agree(gradients.find(s.leaves[i]), s.twins[i].grad(), 1));
    }
  };
  co_await weft::autograd::with_context(me, body, {.mode = s.how});
}

/// Several contexts at once over one graph: the gradients of one process, each in memory that is
/// neither another's nor the user's. False: a graph without gradients.
asio::awaitable<bool> check_sample(worker& me, std::mt19937& random) {
  const sample s = co_await random_sample(random, me.world_size());
  if (s.roots_of(s.expected).empty() || s.is_inexact()) co_return false;
  if (s.breaks) co_await fail_once(me, s);
  const std::size_t contexts = 1 + random() % 3;
  meeting before_release{.missing = contexts};
  std::vector<std::vector<std::uint64_t>> places(contexts);
  std::vector<weft::future<void>> trainers;
  for (auto& mine : places) trainers.push_back(me.spawn(train_once(me, s, mine, before_release)));
  for (auto& t : trainers) co_await std::move(t);

  std::set<std::uint64_t> seen;
  const auto is_alone = [&](std::uint64_t place) { return seen.insert(place).second; };
  const auto note = [&](const at::Tensor& t) {
    if (t.defined()) seen.insert(reinterpret_cast<std::uintptr_t>(t.storage().data()));
  };
  note(s.given);
  for (const at::Tensor& t : s.leaves) note(t);
  for (std::uint32_t w = 0; w < me.world_size(); ++w) {
    for (const auto& [key, parameter] : store_of(w).all()) note(parameter);
  }
  for (const auto& of_context : places) {
    for (const std::uint64_t place : of_context) CHECK(is_alone(place));
  }
  if (s.given.defined()) CHECK(same(s.given, at::full_like(s.given, 2.0)));
  co_return true;
}

TEST_CASE("autograd random: gradients of one process, in memory of their own") {
  const auto wanted = static_cast<int>(rounds(1000, 10000));
  int checked = 0;
  std::mt19937 random(2026);
  for (std::uint32_t round = 0; checked < wanted; ++round) {
    const over how = std::array{over::inproc, over::tcp, over::unix_socket}[round % 3];
    const unsigned io_threads = round / 3 % 3;
    const std::uint32_t world = most_workers - round / 9 % most_workers;
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    CAPTURE(round);
    run_workers(world, how, with_io_threads(io_threads),
                [&](workers& all, worker& me) -> asio::awaitable<void> {
                  for (int g = 0; g < 10; ++g) {
                    CAPTURE(g);
                    if (co_await check_sample(me, random)) ++checked;
                  }
                  CHECK(co_await all_forgotten(all));
                });
  }
  CHECK(checked >= wanted);
}

}  // namespace autograd_tests
