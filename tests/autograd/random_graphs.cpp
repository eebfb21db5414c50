// SPDX-License-Identifier: BSL-1.0
// Random small graphs over one to four workers give the gradients of one process.

#include "in_process.hpp"
#include <weft/autograd/pass.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <set>
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
      : random_(seed), kind_(kind), world_(1 + random_() % 4), ws_(world_, seed) {
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
      REQUIRE(!ws_.backward(initiator, roots,
                            retain ? graph_retention::retain : graph_retention::release, given));
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

  std::size_t compared = 0;

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

void check_all(values kind, std::uint32_t first, std::uint32_t count) {
  std::size_t compared = 0;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    twin t(seed, kind);
    t.check(graph_retention::release, 1 + static_cast<int>(seed % 4));
    compared += t.compared;
  }
  CHECK(compared > count);
}

}  // namespace

TEST_CASE("random graphs: with small integers, bit for bit what one process gives") {
  check_all(values::small_integers, 0, 400);
}

TEST_CASE("random graphs: with random floats, what one process gives within 1e-5") {
  check_all(values::random_floats, 1000, 200);
}
