// SPDX-License-Identifier: BSL-1.0
// Random graphs over one to four workers, by real calls: gradients equal those of one process.
#include "service_functions.hpp"
#include <weft/autograd/service.hpp>

#include <random>

namespace autograd_tests {

/// What a worker does with the leaves it is given: a straight-line program whose steps may call
/// other workers, which run a program of their own.
struct step_spec {
  enum class kind : std::uint8_t { add, sub, mul, matmul, twice, narrow_sum, stack_sum, call };
  kind what = kind::add;
  std::uint32_t left = 0, right = 0;  // earlier values
  std::uint32_t worker = 0;           // of a call
  std::uint32_t program = 0;
};
struct program_spec {
  std::vector<step_spec> steps;
  std::vector<std::uint32_t> results;  // two values
};
struct graph_spec {
  std::vector<program_spec> programs;
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
/// One per worker; index 4 is the one process.
parameter_store& store_of(std::uint32_t worker) {
  static parameter_store stores[5];
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
    case kind::narrow_sum:
      values.push_back(a + b.narrow(0, 0, 1));
      break;
    case kind::stack_sum:
      values.push_back(at::stack({a, b}).sum(0));
      break;
    case kind::call: {
      const auto results = co_await call(s.worker, s.program, std::vector{a, b, a});
      values.insert(values.end(), results.begin(), results.end());
      break;
    }
    }
  }
  co_return std::vector{values[program.results[0]], values[program.results[1]]};
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
  co_return co_await interpret(graph, which, std::move(values), store_of(4).of(worker, which, kind),
                               call);
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
      s.what = calls ? step_spec::kind::call : static_cast<step_spec::kind>(up_to(7));
      s.worker = up_to(world);
      if (calls) s.program = static_cast<std::uint32_t>(p + 1 + up_to(count - p - 1));
      program.steps.push_back(s);
      values += calls ? 2 : 1;
    }
    program.results = {up_to(values), values - 1};
    graph.programs.push_back(std::move(program));
  }
  return graph;
}

void check_random(std::uint32_t world, over how, unsigned io_threads, std::uint32_t seed,
                  int graphs) {
  run_workers(world, how, with_io_threads(io_threads),
              [&](workers& all, worker& me) -> asio::awaitable<void> {
                std::mt19937 random(seed);
                for (int g = 0; g < graphs; ++g) {
                  CAPTURE(g);
                  const graph_spec graph = random_graph(random, world);
                  const int kind = g % 2;  // small integers, floats
                  for (std::uint32_t w = 0; w < 5; ++w) store_of(w) = parameter_store();
                  std::vector<at::Tensor> here, there;
                  for (std::uint32_t i = 0; i < arguments; ++i) {
                    there.push_back(parameter_store::make(static_cast<int>(i) + 50, kind)
                                        .set_requires_grad(i == 0 || random() % 3 != 0));
                    here.push_back(twin(there.back()));
                  }
                  const bool both = random() % 2 == 0;
                  const auto expected = co_await evaluate_here(graph, 0, 0, here, kind);
                  at::Tensor loss = expected[0].sum();
                  if (both) loss = loss + expected[1].sum();
                  if (!loss.requires_grad()) continue;
                  const int passes = 1 + static_cast<int>(random() % 2);
                  // Once: libtorch lets leaves share a gradient's memory (that of stack and sum),
                  // and then counts a second pass twice.
                  loss.backward();

                  const auto agree = [&](const at::Tensor& got, at::Tensor wanted) {
                    if (wanted.defined()) wanted = wanted * passes;
                    if (!wanted.defined() || !got.defined())
                      return wanted.defined() == got.defined();
                    return kind == 0 ? same(got, wanted) : at::allclose(got, wanted, 1e-5, 1e-5);
                  };
                  co_await weft::autograd::scope(me, [&](context ctx) -> asio::awaitable<void> {
                    const auto results = co_await evaluate(me, graph, 0, there, kind);
                    CHECK(agree(results[0].detach() * passes, expected[0].detach()));
                    std::vector<at::Tensor> roots;
                    if (results[0].requires_grad()) roots.push_back(results[0].sum());
                    if (both && results[1].requires_grad()) roots.push_back(results[1].sum());
                    for (int i = 0; i < passes; ++i) {
                      co_await ctx.backward(roots, {.retention = i + 1 < passes
                                                                     ? graph_retention::retain
                                                                     : graph_retention::release});
                    }
                    const auto gradients = co_await ctx.gradients();
                    for (std::uint32_t i = 0; i < arguments; ++i) {
                      CHECK(agree(gradients.find(there[i]), here[i].grad()));
                    }
                    std::size_t compared = 0;
                    for (std::uint32_t w = 0; w < world; ++w) {
                      const auto used = store_of(w).all();
                      for (const auto& [key, parameter] : used) {
                        const at::Tensor got =
                            co_await me.peer(w).call<&stored_gradient>(key.second, kind);
                        CHECK(agree(got, store_of(4).of(w, key.second, kind).grad()));
                        ++compared;
                      }
                    }
                    CHECK(compared == store_of(4).all().size());
                  });
                }
                CHECK(co_await all_forgotten(all));
              });
}

TEST_CASE("autograd random: graphs over one to four workers") {
  for (std::uint32_t world = 1; world <= 4; ++world) {
    check_random(world, over::inproc, 0, 1000 + world, 60);
  }
}
TEST_CASE("autograd random: graphs over four workers and TCP, with an I/O thread") {
  check_random(4, over::tcp, 1, 7, 60);
}

}  // namespace autograd_tests
