// SPDX-License-Identifier: BSL-1.0
// autograd.table2.*: the columns of Table 2 of "PyTorch RPC" (MLSys 2023): two linear layers of
// 1000 x 1000, one of them at another worker; in both modes, beside PyTorch's own.
// autograd.chain.*: a pass over a chain of workers, with discovery, without, and with a plan that
// is kept. autograd.unused.*: half of the results are not used.
#include "peers/python.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <malloc.h>

namespace bench {
namespace served {

constexpr std::int64_t width = 1000;

struct wide_layer {
  at::Tensor weight = at::full({width, width}, 1e-3).set_requires_grad(true);
  at::Tensor bias = at::zeros({width}).set_requires_grad(true);
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias); }
};
void nothing_at_all() {}

/// One more than x, by way of all workers behind this one.
asio::awaitable<at::Tensor> along(weft::worker& me, at::Tensor x) {
  const at::Tensor y = x + 1;
  if (me.rank() + 1 == me.world_size()) co_return y;
  co_return co_await me.peer(me.rank() + 1).call<&along>(y);
}
at::Tensor twice(const at::Tensor& x) { return x * 2; }

}  // namespace served

namespace {

using weft::autograd::context;
using weft::autograd::graph_retention;
using weft::autograd::mode;

/// Times of several kinds, taken in turns so that what else the machine does meets all alike.
class columns {
 public:
  using clock = std::chrono::steady_clock;
  void begin() { start_ = clock::now(); }
  void end(const std::string& column) {
    all_[column].push_back(
        std::chrono::duration<double, std::micro>(clock::now() - start_).count());
  }
  /// The medians, without the first fifth.
  figures medians() const {
    figures out;
    for (auto [name, times] : all_) {
      times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 5));
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
      std::nth_element(times.begin(), middle, times.end());
      out[name] = *middle;
    }
    return out;
  }

 private:
  clock::time_point start_{};
  std::map<std::string, std::vector<double>> all_;
};

template <std::int64_t Batch, mode How>
asio::awaitable<void> table2(weft::worker& me, figures& out) {
  served::wide_layer first, second, other, another;
  const auto there = me.peer(callee_rank).make<served::wide_layer>();
  const at::Tensor x = at::ones({Batch, served::width});
  columns times;
  // Before each column, so that all find their layers, and memory for gradients, in no cache.
  const auto between_columns = [&] {
    another.forward(other.forward(x)).sum().backward();
    for (auto* l : {&first, &second}) {  // the others' gradients stay, and add up
      l->weight.mutable_grad().reset();
      l->bias.mutable_grad().reset();
    }
  };
  const auto local_step = [&] {
    times.begin();
    const at::Tensor loss = second.forward(first.forward(x)).sum();
    times.end("norpc_fwd");
    times.begin();
    loss.backward();
    times.end("norpc_bwd");
  };
  const auto unrecorded = [&]() -> asio::awaitable<at::Tensor> {
    const at::Tensor h = first.forward(x);
    co_return (co_await there.call<&served::wide_layer::forward>(h)).sum();
  };
  const auto recorded = [&](context ctx) -> asio::awaitable<void> {
    times.begin();
    const at::Tensor h = first.forward(x);
    const at::Tensor y = (co_await there.call<&served::wide_layer::forward>(h)).sum();
    times.end("grad_fwd");
    times.begin();
    co_await ctx.backward(y);
    times.end("grad_bwd");
  };
  const auto until = columns::clock::now() + std::chrono::milliseconds(3000);
  for (int round = 0; columns::clock::now() < until; ++round) {
    between_columns();
    local_step();
    for (const bool records : {round % 2 == 0, round % 2 != 0}) {  // each first, in turns
      between_columns();
      if (records) {
        co_await weft::autograd::with_context(me, recorded, {.mode = How});
        continue;
      }
      times.begin();
      const at::Tensor y = co_await weft::with_grad_mode(me, weft::grad_mode::off, unrecorded());
      times.end("nograd_fwd");
      if (y.requires_grad()) throw std::runtime_error("recorded");
    }
    times.begin();
    co_await me.peer(callee_rank).call<&served::nothing_at_all>();
    times.end("trip");
  }
  out = times.medians();
  out["fwd_cost"] = out["grad_fwd"] - out["nograd_fwd"];
  out["bwd_cost"] = out["grad_bwd"] - out["norpc_bwd"] - (out["nograd_fwd"] - out["norpc_fwd"]);
}

/// A pass over so many workers and back.
asio::awaitable<void> chain(weft::worker& me, figures& out) {
  if (me.rank() != 0) co_return;
  columns times;
  const at::Tensor x = at::ones({64}).set_requires_grad(true);
  for (int i = 0; i < 300; ++i) {
    for (const mode how : {mode::smart, mode::fast}) {
      const auto step = [&](context ctx) -> asio::awaitable<void> {
        const at::Tensor y = (co_await served::along(me, x)).sum();
        times.begin();
        co_await ctx.backward(y, {.retention = graph_retention::retain});
        times.end(how == mode::fast ? "fast" : "smart");
        if (how == mode::fast) co_return;
        times.begin();
        co_await ctx.backward(y, {.retention = graph_retention::retain});
        times.end("kept");
      };
      co_await weft::autograd::with_context(me, step, {.mode = how});
    }
    times.begin();
    co_await me.peer(1).call<&served::nothing_at_all>();
    times.end("trip");
  }
  out = times.medians();
}

constexpr std::size_t used = 8;
/// Sixteen calls of which eight are used, and eight that all are.
asio::awaitable<void> unused(weft::worker& me, figures& out) {
  columns times;
  const at::Tensor x = at::ones({64}).set_requires_grad(true);
  const auto there = me.peer(callee_rank);
  for (int i = 0; i < 300; ++i) {
    for (const std::size_t calls : {used, 2 * used}) {
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        at::Tensor sum = x;
        for (std::size_t k = 0; k < calls; ++k) {
          const at::Tensor y = co_await there.call<&served::twice>(x);
          if (k < used) sum = sum + y;
        }
        times.begin();
        co_await ctx.backward(sum.sum());
        times.end(calls == used ? "all_used" : "half_used");
      });
    }
  }
  out = times.medians();
}

/// As weft_run, but freed memory is kept: else the system gives new pages for each gradient of 4
/// MB, or not, by chance.
run_ptr steady_run(const std::string& name, placement where, threads_of_links io_threads,
                   job what) {
  return make_run({.name = "weft " + name, .where = where, .measure = [=] {
                     ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
                     ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
                     return between(link_kind::tcp, where, io_threads, what);
                   }});
}

}  // namespace

void add_gradient_rows(std::vector<row>& rows) {
  const auto python = make_run({.name = "python table2",
                                .where = placement::one_core,
                                .measure = [] { return python::run("python_autograd.py"); },
                                .limit = std::chrono::seconds(120),
                                .most_rounds = 3});
  const auto add = [&]<std::int64_t Batch>() {
    const std::string b = "b" + std::to_string(Batch);
    const std::string name = "autograd.table2." + b;
    const auto smart =
        steady_run(name + ".smart", placement::one_core, 0, table2<Batch, mode::smart>);
    const auto fast = steady_run(name + ".fast", placement::one_core, 0, table2<Batch, mode::fast>);
    for (const char* column : {"norpc_fwd", "nograd_fwd", "grad_fwd", "norpc_bwd", "grad_bwd",
                               "fwd_cost", "bwd_cost", "trip"}) {
      row one{name + "." + column, "ms", {{"weft", smart, column, 1e-3}}};
      one.subjects.push_back({"FAST", fast, column, 1e-3});
      if (std::string(column) != "trip") {
        one.subjects.push_back({"PyTorch RPC", python, b + "_" + column, 1e-3});
      }
      rows.push_back(std::move(one));
    }
    const auto smart2 = steady_run(name + ".2c.smart", placement::core_each, by_default,
                                   table2<Batch, mode::smart>);
    const auto fast2 = weft_run(name + ".2c.fast", link_kind::tcp, placement::core_each, by_default,
                                table2<Batch, mode::fast>);
    for (const char* column : {"fwd_cost", "bwd_cost"}) {
      rows.push_back({name + "." + column + ".2c",
                      "ms",
                      {{"weft", smart2, column, 1e-3}, {"FAST", fast2, column, 1e-3}}});
    }
  };
  add.operator()<1>();
  add.operator()<8>();
  add.operator()<32>();
  for (const unsigned n : {2u, 4u, 8u}) {
    const std::string name = "autograd.chain." + std::to_string(n);
    const auto of = make_run({.name = "weft " + name, .where = placement::one_core, .measure = [n] {
                                return among(n, link_kind::tcp, placement::one_core, 0, chain);
                              }});
    rows.push_back({name,
                    "ms",
                    {{"weft", of, "smart", 1e-3},
                     {"FAST", of, "fast", 1e-3},
                     {"kept plan", of, "kept", 1e-3},
                     {"empty call", of, "trip", 1e-3}}});
  }
  const auto half = weft_run("autograd.unused", link_kind::tcp, placement::one_core, 0, unused);
  rows.push_back({"autograd.unused",
                  "ms",
                  {{"weft", half, "half_used", 1e-3}, {"all used", half, "all_used", 1e-3}}});
}

}  // namespace bench
