// SPDX-License-Identifier: BSL-1.0
// tensordict.*: weft::tensordict beside bare libtorch, which does the same to a vector of tensors,
// and Python's tensordict.
#include "peers/python.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

weft::tensordict same_dict(weft::tensordict td) { return td; }
at::Tensor same_bytes(at::Tensor t) { return t; }

}  // namespace served

namespace {

using at::indexing::Slice;
using weft::tensordict;
constexpr std::int64_t leaves = 100;

tensordict made_of(std::int64_t n, at::IntArrayRef sizes, at::IntArrayRef batch) {
  tensordict td(batch);
  for (std::int64_t i = 0; i < n; ++i) td.set("entry" + std::to_string(i), at::rand(sizes));
  return td;
}
std::vector<at::Tensor> tensors_of(const tensordict& td) {
  std::vector<at::Tensor> out;
  for (const auto& [key, t] : td.leaves()) out.push_back(t);
  return out;
}

/// Microseconds of f, the median; `times` of it in one sample.
template <class F>
figures timed(const F& f, int times = 1,
              std::chrono::milliseconds budget = std::chrono::milliseconds(400)) {
  pace samples(budget);
  while (samples.more()) {
    samples.begin();
    for (int i = 0; i < times; ++i) f();
    samples.end();
  }
  return {{"p50", samples.latency()["p50"] / times}};
}

/// Of tensors of 32 x 4, each in a dictionary of its own and bare.
figures index_dict() {
  const tensordict td = made_of(leaves, {32, 4}, {32});
  return timed([&] { static_cast<void>(td.index({Slice(0, 16)})); });
}
figures index_bare() {
  const auto all = tensors_of(made_of(leaves, {32, 4}, {32}));
  const at::indexing::TensorIndex index(Slice(0, 16));
  return timed([&] {
    std::vector<at::Tensor> out;
    for (const at::Tensor& t : all) out.push_back(at::indexing::get_item(t, {index}));
  });
}
figures apply_dict() {
  const tensordict td = made_of(leaves, {32, 4}, {32});
  return timed([&] { static_cast<void>(td.apply([](const at::Tensor& t) { return t.add(1); })); });
}
figures apply_bare() {
  const auto all = tensors_of(made_of(leaves, {32, 4}, {32}));
  return timed([&] {
    std::vector<at::Tensor> out;
    for (const at::Tensor& t : all) out.push_back(t.add(1));
  });
}
figures stack_dict() {
  std::vector<tensordict> several;
  for (int i = 0; i < 8; ++i) several.push_back(made_of(leaves, {32, 4}, {32}));
  return timed([&] { static_cast<void>(weft::stack(several)); });
}
figures stack_bare() {
  std::vector<std::vector<at::Tensor>> several;
  for (int i = 0; i < 8; ++i) several.push_back(tensors_of(made_of(leaves, {32, 4}, {32})));
  return timed([&] {
    std::vector<at::Tensor> out;
    for (std::size_t l = 0; l < leaves; ++l) {
      std::vector<at::Tensor> one;
      for (const auto& s : several) one.push_back(s[l]);
      out.push_back(at::stack(one));
    }
  });
}
constexpr int many = 1000;
figures get_path() {
  const tensordict td({{"a", {{"b", at::rand({32, 4})}}}}, {32});
  std::int64_t seen = 0;
  auto out = timed([&] { seen += td.tensor(weft::path<"a", "b">).dim(); }, many);
  if (seen == 0) throw std::runtime_error("nothing was read");
  return out;
}
figures set_path() {
  tensordict td({{"a", {{"b", at::rand({32, 4})}}}}, {32});
  const at::Tensor value = at::rand({32, 4});
  return timed([&] { td.set(weft::path<"a", "b">, value); }, many);
}

/// 100 MB, into memory that is there, by two threads.
constexpr unsigned copiers = 2;
figures consolidate_dict() {
  at::set_num_threads(copiers);
  const tensordict td = made_of(leaves, {1 << 18}, {});
  const at::Tensor into = at::zeros({td.bytes()}, at::kByte);
  return timed([&] { static_cast<void>(td.consolidate(copiers, into)); }, 1,
               std::chrono::milliseconds(1500));
}
figures copy_bare() {
  at::set_num_threads(copiers);
  const at::Tensor from = at::rand({leaves << 18});
  const at::Tensor into = at::zeros({static_cast<std::int64_t>(from.nbytes())}, at::kByte);
  const std::size_t part = from.nbytes() / copiers;
  return timed(
      [&] {
        at::parallel_for(0, copiers, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            std::memcpy(static_cast<char*>(into.mutable_data_ptr()) + i * part,
                        static_cast<const char*>(from.const_data_ptr()) + i * part, part);
          }
        });
      },
      1, std::chrono::milliseconds(1500));
}
figures consolidate_small() {
  const tensordict td = made_of(leaves, {256}, {});
  return timed([&] { static_cast<void>(td.consolidate()); });
}

/// There and back, of so many tensors of 1 KB, in one buffer.
template <std::int64_t Leaves>
asio::awaitable<void> call_dict(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const tensordict td = made_of(Leaves, {256}, {}).consolidate();
  pace times(std::chrono::milliseconds(Leaves > 1000 ? 1500 : 600));
  while (times.more()) {
    times.begin();
    const auto reply = co_await callee.template call<&served::same_dict>(td);
    times.end();
    if (reply.size() != static_cast<std::size_t>(Leaves)) throw std::runtime_error("other keys");
  }
  out = times.latency();
}
template <std::int64_t Leaves>
asio::awaitable<void> call_bytes(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const at::Tensor bytes = at::ones({Leaves * 1024}, at::kByte);
  pace times(std::chrono::milliseconds(Leaves > 1000 ? 1500 : 600));
  while (times.more()) {
    times.begin();
    const auto reply = co_await callee.template call<&served::same_bytes>(bytes);
    times.end();
    if (reply.numel() != bytes.numel()) throw std::runtime_error("other bytes");
  }
  out = times.latency();
  out["p50"] += 0.2 * static_cast<double>(Leaves);  // what the tensors may cost
}

template <std::int64_t Leaves>
void add_call(std::vector<row>& rows, const std::string& name) {
  constexpr auto where = placement::two_cores;
  const auto of = [&](const std::string& who, job what) {
    return weft_run(who + " " + name, link_kind::unix_socket, where, by_default, what);
  };
  rows.push_back(
      {"tensordict.call." + name,
       "us",
       {{"weft", of("tensordict", call_dict<Leaves>), "p50"},
        {"bytes + 0.2 us each", of("bytes for tensordict", call_bytes<Leaves>), "p50"}}});
}

}  // namespace

void add_tensordict_rows(std::vector<row>& rows) {
  const auto python = make_run({.name = "python tensordict",
                                .where = placement::two_cores,
                                .measure = [] { return python::run("python_tensordict.py"); },
                                .limit = std::chrono::seconds(400),
                                .most_rounds = 3});
  const auto add = [&](const std::string& name, double scale, const std::string& unit,
                       figures (*weft)(), figures (*bare)(),
                       placement where = placement::one_core) {
    row one{"tensordict." + name, unit, {}};
    const auto run_of = [&](const std::string& who, figures (*f)()) {
      return make_run({.name = who + " tensordict." + name, .where = where, .measure = f});
    };
    one.subjects.push_back({"weft", run_of("weft", weft), "p50", scale});
    if (bare) one.subjects.push_back({"libtorch", run_of("libtorch", bare), "p50", scale});
    one.subjects.push_back({"python", python, name, scale});
    rows.push_back(std::move(one));
  };
  constexpr double each = 1.0 / leaves;  // of one tensor
  add("index", each, "us", index_dict, index_bare);
  add("apply", each, "us", apply_dict, apply_bare);
  add("stack", each, "us", stack_dict, stack_bare);
  add("get", 1000, "ns", get_path, nullptr);
  add("set", 1000, "ns", set_path, nullptr);
  add("consolidate", 1e-3, "ms", consolidate_dict, copy_bare, placement::two_cores);
  add("consolidate_small", 1, "us", consolidate_small, nullptr);
  add_call<leaves>(rows, "100x1KB");
  add_call<100 * leaves>(rows, "10000x1KB");
}

}  // namespace bench
