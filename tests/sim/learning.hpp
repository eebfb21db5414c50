// SPDX-License-Identifier: BSL-1.0
// A program of random graphs, backward passes and optimizers' steps for simulated worlds, and what
// must hold of their gradients. All numbers are small integers, so that sums are exact in any order
// and equal those of one process.
#pragma once

#include <weft/rref/rref.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <sim/calls.hpp>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

using tensors = std::vector<at::Tensor>;

/// Who is called, and what it does.
struct callee {
  std::uint32_t worker = 0;  // unless it is a layer, by its place among the caller's
  std::optional<std::uint32_t> layer{};
  std::size_t plan = 0;
};
struct operation {
  enum class kind : std::uint8_t {
    through_weight,
    add,
    subtract,
    multiply,
    matmul,
    transpose,
    spread,
    cut,  // without history
    call,
    call_two,    // at once, with the same tensors
    unrecorded,  // a call with recording off
    given_up     // a call of whose results nobody hears
  };
  kind what = kind::through_weight;
  std::uint32_t left = 0, right = 0;  // earlier values
  callee first{}, second{};
};
/// What a function does with two tensors: results are one of the values and the last one.
struct plan {
  enum class style : std::uint8_t { at_once, on_pool, immediate, takes_time };
  style how = style::at_once;
  std::optional<std::uint32_t> layer{};  // that it calls itself: the reference is an argument
  std::vector<operation> operations;
  std::uint32_t result = 0;
};

/// What is known of one layer.
struct seen_layer {
  std::uint32_t owner = 0;
  at::Tensor start, weight;  // the latter is the owner's
  int made = 0, dead = 0;
};
/// A pass that a function begins.
struct seen_pass {
  std::vector<at::Tensor> given;
  std::vector<autograd::riding_step> then;
  std::optional<expected<void>> outcome;
};

/// Everything of a world that its functions know without being told: what travels is what must.
class learning_witness {
 public:
  explicit learning_witness(witness& of);
  learning_witness(const learning_witness&) = delete;
  learning_witness& operator=(const learning_witness&) = delete;
  ~learning_witness() { current = nullptr; }

  witness& calls;
  std::deque<plan> plans;
  std::deque<seen_layer> layers;
  std::deque<seen_pass> passes;
  tensors shared;  // a weight of each worker that nobody changes, and every trainer uses
  std::size_t size = 1;
  std::uint64_t lessons = 0, passed = 0, failed = 0, stepped = 0, rode = 0, twice = 0;

  [[nodiscard]] int living(std::uint32_t owner) const {
    int n = 0;
    for (const seen_layer& l : layers) n += l.owner == owner ? l.made - l.dead : 0;
    return n;
  }
  static thread_local learning_witness* current;
};
inline thread_local learning_witness* learning_witness::current = nullptr;

/// A weight, whose life is watched; one that was moved from has none.
class layer {
 public:
  layer(std::uint64_t number, std::uint32_t here);
  layer(layer&& other) noexcept
      : number_(other.number_),
        in_(std::exchange(other.in_, nullptr)),
        weight_(std::move(other.weight_)) {}
  layer& operator=(layer&&) = delete;
  ~layer();

  asio::awaitable<tensors> run(worker& me, std::uint64_t which, rref<layer> next, tensors in);
  tensors run_on_pool(std::uint64_t which, const tensors& in) const;
  immediate<tensors> run_in_place(std::uint64_t which, const tensors& in) const;
  rref<at::Tensor> share(worker& me) const;

 private:
  std::uint64_t number_;
  learning_witness* in_;
  at::Tensor weight_;
};

layer make_layer(worker& me, std::uint64_t number);
asio::awaitable<tensors> run_shared(worker& me, std::uint64_t which, rref<layer> next, tensors in);
tensors run_shared_on_pool(worker& me, std::uint64_t which, const tensors& in);
immediate<tensors> run_shared_in_place(const caller& by, std::uint64_t which, const tensors& in);
/// The gradients, in the running context, of these layers and of the shared weight, each in memory
/// that nothing else uses.
asio::awaitable<tensors> gradients_here(worker& me, std::vector<std::uint64_t> layers);
tensors values_here(worker& me, const std::vector<std::uint64_t>& layers);
/// Begins a pass in its caller's context.
asio::awaitable<void> begins_a_pass(worker& me, std::uint64_t which, tensors roots);

/// What each worker's main does.
asio::awaitable<void> some_learning(worker& me);

}  // namespace weft::testing
