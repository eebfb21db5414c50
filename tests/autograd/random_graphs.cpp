// SPDX-License-Identifier: BSL-1.0
// Random small graphs over one to six workers give the gradients of one process.

#include "in_process.hpp"
#include <weft/autograd/pass.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <core/run_all.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace weft::autograd;
using weft::autograd::test::workers;

enum class values { small_integers, random_floats };

/// A graph with every value twice: as the workers see it, and as one process does.
class twin {
 public:
  twin(std::uint32_t seed, values kind)
      : random_(seed), kind_(kind), world_(1 + random_() % 6), ws_(world_, seed) {
    at::manual_seed(seed);
    for (worker_rank w = 0; w < world_; ++w) {
      here_.emplace_back();
      for (int i = 0; i < 2; ++i) {
        auto value = kind == values::small_integers ? at::randint(-2, 3, {2, 2}, at::kDouble)
                                                    : at::randn({2, 2}, at::kDouble);
        auto copy = value.clone();
        leaves_.push_back({w, {value.requires_grad_(), copy.requires_grad_()}});
        here_[w].push_back(leaves_.back().second);
      }
    }
    const auto steps = 4 + random_() % 28;
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (random_() % 3 == 0) {
        transfer();
      } else {
        operate();
      }
    }
  }

  void check(graph_retention last, int passes) {
    const worker_rank initiator = random_() % world_;
    std::vector<at::Tensor> roots, reference, given;
    for (std::uint32_t i = 0; i <= random_() % 3; ++i) {
      const auto& p = pick(initiator);
      if (!p.single.requires_grad()) continue;
      if (random_() % 2 == 0) {
        roots.push_back(p.distributed.sum());
        reference.push_back(p.single.sum());
        given.emplace_back();
      } else {  // perhaps the same gradient for two roots, and in every pass
        roots.push_back(p.distributed);
        reference.push_back(p.single);
        given.push_back(i % 2 == 0 || !given.back().defined() ||
                                given.back().sizes() != p.single.sizes()
                            ? at::full_like(p.single.detach(), 2.0)
                            : given.back());
      }
    }
    if (roots.empty()) return;
    std::vector<at::Tensor> before;
    for (const at::Tensor& g : given) before.push_back(g.defined() ? g.clone() : g);
    for (int i = 0; i < passes; ++i) {
      const bool retain = i + 1 < passes || last == graph_retention::retain;
      const auto kept = retain ? graph_retention::retain : graph_retention::release;
      REQUIRE(!ws_.run(initiator, roots, {.settings = kept, .given = given}).failure);
      for (std::size_t k = 0; k < given.size(); ++k) {
        if (given[k].defined()) REQUIRE(at::equal(given[k], before[k]));
      }
    }
    // Once: libtorch lets leaves share a gradient's memory, and then counts a second pass twice.
    torch::autograd::backward(reference, before);
    check_memory(given);
    std::size_t keys = 0;
    for (const auto& [w, leaf] : leaves_) {
      const auto mine = ws_.gradients(w).find(leaf.distributed);
      auto theirs = leaf.single.grad();
      if (theirs.defined()) theirs = theirs * passes;
      REQUIRE(mine.defined() == theirs.defined());
      if (!mine.defined()) continue;
      ++keys;
      compared += 1;
      if (kind_ == values::small_integers) {
        REQUIRE(theirs.abs().max().item<double>() < 9007199254740992.0);  // still exact
        CHECK(at::equal(mine, theirs));
      } else {
        CHECK(at::allclose(mine, theirs, 1e-5, 1e-12));
      }
      CHECK(!leaf.distributed.grad().defined());
    }
    for (worker_rank w = 0; w < world_; ++w) keys -= ws_.gradients(w).size();
    CHECK(keys == 0);
  }

  /// SMART and FAST give the same where FAST succeeds, and it does if all messages are used.
  void check_modes() {
    const worker_rank initiator = random_() % world_;
    const pair& p = pick(initiator);
    if (!p.single.requires_grad()) return;
    const std::vector<at::Tensor> roots{p.distributed.sum()};
    const auto smart = ws_.run(initiator, roots, {.settings = graph_retention::retain});
    REQUIRE(!smart.failure);
    std::map<const void*, at::Tensor> once;
    for (const auto& [w, leaf] : leaves_) {
      const auto g = ws_.gradients(w).find(leaf.distributed);
      if (g.defined()) once[leaf.distributed.unsafeGetTensorImpl()] = g.clone();
    }
    const auto fast =
        ws_.run(initiator, roots, {.settings = graph_retention::retain, .how = mode::fast});
    CHECK(fast.waits == (smart.gradients != ws_.sends(smart.participants)));
    CHECK(fast.waits == fast.failure.has_value());
    fast.waits ? ++waited : ++agreed;
    for (const auto& [w, leaf] : leaves_) {
      const auto g = ws_.gradients(w).find(leaf.distributed);
      const auto first = once.find(leaf.distributed.unsafeGetTensorImpl());
      REQUIRE(g.defined() == (first != once.end()));
      if (g.defined()) CHECK(at::equal(g, fast.waits ? first->second : first->second * 2));
    }
  }

  /// First and second derivatives, for some inputs, as libtorch's grad has them.
  void check_orders() {
    const worker_rank initiator = random_() % world_;
    const pair root = pick(initiator);
    if (!root.single.requires_grad()) return;
    std::vector<at::Tensor> inputs, single;
    for (std::uint32_t i = 0; i <= random_() % 3; ++i) {
      const pair p = random_() % 2 == 0 ? here_[initiator][random_() % 2] : pick(initiator);
      if (!p.single.requires_grad()) continue;
      // In one process, a copy that came in a message is the tensor itself.
      if (dynamic_cast<recv_node*>(p.distributed.grad_fn().get())) continue;
      inputs.push_back(p.distributed);
      single.push_back(p.single);
    }
    if (inputs.empty()) return;
    std::vector<at::Tensor> roots{root.distributed.sum()}, reference{root.single.sum()};
    for (int order = 1; order <= 3; ++order) {
      CAPTURE(order);
      const bool last = order == 3;
      const pass_settings settings(graph_retention::retain,
                                   last ? gradient_graph::none : gradient_graph::create,
                                   leaf_gradients::inputs);
      const auto mine =
          ws_.run(initiator, roots, {.settings = settings, .inputs = inputs, .capture = true});
      REQUIRE(!mine.failure);
      const auto theirs =
          torch::autograd::grad(reference, single, {}, true, !last, /*allow_unused=*/true);
      REQUIRE(mine.captured.size() == theirs.size());
      roots.clear();
      reference.clear();
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        CAPTURE(i);
        REQUIRE(mine.captured[i].defined() == theirs[i].defined());
        if (!theirs[i].defined()) continue;
        ++compared;
        if (kind_ == values::small_integers) {
          REQUIRE(theirs[i].detach().abs().max().item<double>() < 9007199254740992.0);
          CHECK(at::equal(mine.captured[i], theirs[i]));
        } else {
          CHECK(at::allclose(mine.captured[i], theirs[i], 1e-5, 1e-12));
        }
        CHECK(mine.captured[i].requires_grad() == theirs[i].requires_grad());
        if (!theirs[i].requires_grad()) continue;
        roots.push_back((mine.captured[i] * mine.captured[i]).sum());
        reference.push_back((theirs[i] * theirs[i]).sum());
      }
      for (worker_rank w = 0; w < world_; ++w) CHECK(ws_.gradients(w).empty());
      if (roots.empty()) return;
      ++orders[order];
    }
  }

  std::size_t compared = 0;
  std::size_t waited = 0, agreed = 0;  // FAST
  std::map<int, std::size_t> orders;   // how many had a derivative of the next order

 private:
  struct pair {
    at::Tensor distributed;
    at::Tensor single;
  };

  /// Nothing else lies where a gradient does.
  void check_memory(const std::vector<at::Tensor>& given) {
    std::set<const void*> seen;
    const auto note = [&](const at::Tensor& t) {
      if (t.defined()) seen.insert(t.storage().unsafeGetStorageImpl());
    };
    for (const at::Tensor& g : given) note(g);
    for (const auto& all : here_) {
      for (const pair& p : all) note(p.distributed);
    }
    for (worker_rank w = 0; w < world_; ++w) {
      for (const auto& e : ws_.gradients(w).entries()) {
        CHECK(seen.insert(e.gradient.storage().unsafeGetStorageImpl()).second);
      }
    }
  }

  pair& pick(worker_rank w) {
    auto& all = here_[w];
    const auto size = static_cast<std::uint32_t>(all.size());
    if (random_() % 2 == 0) return all[random_() % size];
    return all[size - 1 - random_() % (size < 4 ? size : 4)];
  }
  void transfer() {
    const worker_rank from = random_() % world_;
    const worker_rank to = random_() % world_;
    std::vector<at::Tensor> sent;
    std::vector<at::Tensor> single;
    for (std::uint32_t i = 0; i <= random_() % 3; ++i) {
      const pair& p = pick(from);
      sent.push_back(p.distributed);
      single.push_back(p.single);
    }
    for (std::uint32_t again = 0; again <= random_() % 2; ++again) {  // to two workers
      const worker_rank receiver = (to + again) % world_;
      const auto got = ws_.transfer(from, sent, receiver);
      for (std::size_t i = 0; i < got.size(); ++i) {
        here_[receiver].push_back({got[i], single[i]});
      }
    }
  }
  void operate() {
    const worker_rank w = random_() % world_;
    const pair a = pick(w);
    const pair b = pick(w);
    const auto op = random_() % 15;
    const auto apply = [op](const at::Tensor& x, const at::Tensor& y) -> std::vector<at::Tensor> {
      switch (op) {
      case 0:
        return {x + y};
      case 1:
        return {x - y * 2};
      case 2:
        return {at::remainder(x * y, 3)};
      case 3:
        return {at::remainder(x.matmul(y), 3)};
      case 4:
        return {at::relu(x)};
      case 5:
        return {x.t()};
      case 6:
        return x.split(1, 0).size() == 2
                   ? std::vector<at::Tensor>{x.split(1, 0)[0] + y, x.split(1, 0)[1] * y}
                   : std::vector<at::Tensor>{x};
      case 7:
        return {at::stack({x.select(0, 0), y.select(1, 1)})};
      case 8: {  // in place on a view
        auto z = x.clone();
        z.select(0, 1).add_(y.select(1, 0));
        return {z};
      }
      case 9:
        return {x.sum() - y};
      case 10:
        return {x + y.sum(0)};
      case 11:
        return {x.sum(0).expand({2, 2})};
      case 12:
        return {x.narrow(0, 0, 2)};
      case 13:
        return {at::stack({x, y}).sum(0)};  // one gradient for two inputs, as views
      default:
        return {x.detach() + y};
      }
    };
    const auto distributed = apply(a.distributed, b.distributed);
    const auto single = apply(a.single, b.single);
    for (std::size_t i = 0; i < single.size(); ++i) {
      auto d = distributed[i];
      auto s = single[i];
      if (kind_ == values::small_integers) {  // values stay small, gradients pass
        d = at::remainder(d, 5) - 2;
        s = at::remainder(s, 5) - 2;
      }
      here_[w].push_back({d, s});
    }
  }

  test::dice random_;
  values kind_;
  worker_rank world_;
  workers ws_;
  std::vector<std::vector<pair>> here_;  // what each worker can build on
  std::vector<std::pair<worker_rank, pair>> leaves_;
};

std::vector<std::uint32_t> seeds_from(std::uint32_t first) {
  std::vector<std::uint32_t> all(weft::testing::rounds(400, 25000));
  std::iota(all.begin(), all.end(), first);
  return all;
}

void check_all(values kind, std::uint32_t first) {
  std::size_t compared = 0;
  for (const std::uint32_t seed : seeds_from(first)) {
    CAPTURE(seed);
    twin t(seed, kind);
    t.check(graph_retention::release, 1 + static_cast<int>(seed % 4));
    compared += t.compared;
  }
  CHECK(compared > seeds_from(first).size());
}

}  // namespace

TEST_CASE("random graphs: with small integers, bit for bit what one process gives") {
  check_all(values::small_integers, 0);
}

TEST_CASE("random graphs: FAST gives what SMART gives, or waits for a message that is not used") {
  std::size_t waited = 0, agreed = 0;
  for (const std::uint32_t seed : seeds_from(200000)) {
    CAPTURE(seed);
    twin t(seed, values::small_integers);
    t.check_modes();
    waited += t.waited;
    agreed += t.agreed;
  }
  MESSAGE(waited, " waited, ", agreed, " agreed");
  CHECK(waited > 20);
  CHECK(agreed > 20);
}

TEST_CASE("random graphs: derivatives of three orders are those of one process") {
  std::size_t compared = 0;
  std::map<int, std::size_t> orders;
  for (const std::uint32_t seed : seeds_from(300000)) {
    CAPTURE(seed);
    twin t(seed, seed % 4 == 0 ? values::random_floats : values::small_integers);
    t.check_orders();
    compared += t.compared;
    for (const auto& [order, n] : t.orders) orders[order] += n;
  }
  MESSAGE(compared, " compared; ", orders[1], " and ", orders[2], " had a next order");
  CHECK(orders[2] > 20);
}

TEST_CASE("random graphs: with random floats, what one process gives within 1e-5") {
  check_all(values::random_floats, 100000);
}
