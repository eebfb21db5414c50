// SPDX-License-Identifier: BSL-1.0
// What the tests of distributed autograd call on other workers, and how they look at the result.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/autograd/grad_mode.hpp>
#include <weft/autograd/released_contexts.hpp>
#include <weft/core/task_group.hpp>
#include <weft/engine/services/context_state.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <rref/workers.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace autograd_tests {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::autograd_service;
using weft::errc;
using weft::rref;
using weft::worker;
using weft::autograd::context;
using weft::autograd::graph_retention;

inline autograd_service& service(workers& all, std::uint32_t rank) {
  return all.at(rank).use<autograd_service>();
}
inline std::size_t contexts_everywhere(workers& all) {
  std::size_t n = 0;
  for (std::uint32_t r = 0; r < all.size(); ++r) n += service(all, r).contexts();
  return n;
}
inline std::size_t passes_everywhere(workers& all) {
  std::size_t n = 0;
  for (std::uint32_t r = 0; r < all.size(); ++r) n += service(all, r).passes();
  return n;
}
/// Frames of the autograd service that anybody sent.
inline std::uint64_t frames_everywhere(workers& all) {
  std::uint64_t n = 0;
  for (std::uint32_t r = 0; r < all.size(); ++r) n += service(all, r).frames();
  return n;
}
/// No context and no pass is left anywhere.
[[nodiscard]] inline asio::awaitable<bool> all_forgotten(workers& all) {
  return eventually(
      [&all] { return contexts_everywhere(all) == 0 && passes_everywhere(all) == 0; });
}

/// Small integers by a seed, so that sums are exact in every order: a leaf that requires grad.
inline at::Tensor leaf(int seed, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (const auto s : sizes) count *= s;
  const at::Tensor numbers = at::arange(count, at::kLong).mul(7 + 2 * seed).add(seed).remainder(9);
  return numbers.sub(4).to(type).reshape(sizes).set_requires_grad(true);
}
/// Another leaf with the same values.
inline at::Tensor twin(const at::Tensor& t) {
  return t.detach().clone().set_requires_grad(t.requires_grad());
}
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

// Plain functions run on the pool, coroutines on the worker's thread, immediate ones on the link's.
inline at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return a + b; }
inline at::Tensor mul(const at::Tensor& a, const at::Tensor& b) { return a * b; }
inline at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) { return a.matmul(b); }
inline at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) { return a.bmm(b); }
inline at::Tensor stack(std::vector<at::Tensor> all) { return at::stack(all); }
inline std::vector<at::Tensor> split(const at::Tensor& t, std::int64_t size) {
  return t.split(size);
}
inline weft::immediate<at::Tensor> twice(const at::Tensor& a) { return {a * 2}; }
inline asio::awaitable<at::Tensor> add_later(at::Tensor a, at::Tensor b) {
  co_await asio::post(asio::use_awaitable);
  co_return a + b;
}
inline bool requires_grad(const at::Tensor& t) { return t.requires_grad(); }
inline bool is_leaf(const at::Tensor& t) { return t.is_leaf(); }
inline void nothing() {}
inline at::Tensor keep(const at::Tensor& t) { return t; }

/// Two parameters of another worker.
class pair_of_parameters {
 public:
  explicit pair_of_parameters(int seed)
      : first_(leaf(seed, {3, 3})), second_(leaf(seed + 1, {3, 3})) {}
  at::Tensor first() { return first_; }
  at::Tensor second() { return second_; }
  at::Tensor use_first(const at::Tensor& x) { return x.matmul(first_); }
  at::Tensor use_second(const at::Tensor& x) { return x.matmul(second_); }
  asio::awaitable<at::Tensor> use_both(at::Tensor x) {
    co_await asio::post(asio::use_awaitable);
    co_return x.matmul(first_).matmul(second_);
  }
  bool grad_is_defined() { return first_.grad().defined() || second_.grad().defined(); }

 private:
  at::Tensor first_, second_;
};

/// The gradient of a tensor that lives here, in the caller's context; undefined if there is none.
inline asio::awaitable<at::Tensor> gradient_of(worker& me, at::Tensor& variable) {
  const auto gradients = co_await weft::autograd::this_context(me).gradients();
  co_return gradients.find(variable);
}
inline asio::awaitable<std::uint64_t> gradients_here(worker& me) {
  co_return (co_await weft::autograd::this_context(me).gradients()).size();
}

/// y = 2x; backward throws while `broken`, and waits at `door` if there is one.
struct fragile : torch::autograd::Function<fragile> {
  static inline std::atomic<bool> broken{false};
  static inline std::atomic<gate*> door{nullptr};
  static inline std::atomic<int> passes{0};
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    ++passes;
    if (gate* d = door.load()) d->pass();
    if (broken) throw std::runtime_error("the fragile node broke");
    return {g[0] * 2};
  }
};
inline at::Tensor fragile_twice(const at::Tensor& x) { return fragile::apply(x); }

}  // namespace autograd_tests
