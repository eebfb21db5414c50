// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/checkpoint.hpp.
#pragma once

#include <weft/autograd/checkpoint.hpp>
#include <weft/autograd/executor.hpp>
#include <weft/linkage.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

namespace weft::autograd {

namespace detail {

/// The CPU's default generator, for functions that draw from it: one at a time in a process.
class random_numbers {
 public:
  static at::Tensor state() {
    at::Generator g = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard lock(g.mutex());
    return g.get_state();
  }
  static void set(const at::Tensor& state) {
    at::Generator g = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard lock(g.mutex());
    g.set_state(state);
  }
  /// Recursive: checkpointed functions contain others.
  [[nodiscard]] static std::unique_lock<std::recursive_mutex> lock() {
    return std::unique_lock(mutex_);
  }
  /// Whether no function of that type has drawn any; false if none has run.
  [[nodiscard]] static bool are_not_drawn_by(const std::type_info& function) {
    const auto held = lock();
    const auto known = draws_.find(function);
    return known != draws_.end() && !known->second;
  }
  static void note(const std::type_info& function, bool draws) {
    const auto held = lock();
    draws_[function] |= draws;
  }

 private:
  WEFT_PROCESS_WIDE inline static std::recursive_mutex mutex_;
  WEFT_PROCESS_WIDE inline static std::map<std::type_index, bool> draws_;
};

[[nodiscard]] inline bool is_differentiable(const at::Tensor& t) {
  return t.defined() && torch::autograd::isDifferentiableType(t.scalar_type());
}

/// Stands for the graph of a checkpointed function.
class checkpoint_node final : public torch::autograd::Node {
 public:
  checkpoint_node(checkpointed function, const std::vector<at::Tensor>& inputs)
      : function_(std::move(function)) {
    for (const at::Tensor& t : inputs) inputs_.emplace_back(t, false);
  }
  /// The function draws random numbers: all between these states.
  void draws(at::Tensor from, at::Tensor to) {
    random_ = std::move(from);
    random_behind_ = std::move(to);
  }
  std::string name() const override { return "weft::checkpoint"; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw std::logic_error("a checkpointed function has no second derivatives");
    }
    local_executor* const outer = local_executor::running();
    const auto* const some = torch::autograd::get_current_graph_task_exec_info();
    if (outer != nullptr ? outer->is_pruned() : some != nullptr && !some->empty()) {
      throw std::logic_error(
          "a checkpointed function cannot run in a pass for some inputs: it may use them inside");
    }
    // These notice a second pass over a graph that was not kept, and changes in place since.
    std::vector<at::Tensor> again;
    for (const torch::autograd::SavedVariable& saved : inputs_) {
      const at::Tensor t = saved.unpack();
      again.push_back(t.defined() ? t.detach().set_requires_grad(t.requires_grad()) : t);
    }
    std::vector<at::Tensor> results;
    {
      const at::AutoGradMode on(true);
      results = random_.defined() ? with_same_numbers(again) : function_(again);
    }
    std::vector<at::Tensor> roots, given;
    std::size_t next = 0;  // results without gradients have none
    for (const at::Tensor& r : results) {
      if (!is_differentiable(r) || next == gradients.size()) continue;
      const at::Tensor& gradient = gradients[next++];
      if (!gradient.defined() || !r.requires_grad()) continue;
      roots.push_back(r);
      given.push_back(gradient);
    }
    if (roots.empty()) return torch::autograd::variable_list(num_outputs());
    if (outer == nullptr) {
      torch::autograd::backward(roots, given);
      return of_inputs([](const at::Tensor& t) { return t.grad(); }, again);
    }
    gradient_map inner;
    evaluate_local(roots_of(roots, given), graph_retention::release, inner);
    auto out = of_inputs([&](const at::Tensor& t) { return inner.find(t); }, again);
    for (const auto& e : inner.entries()) {
      const auto is_it = [&](const at::Tensor& t) { return t.is_same(e.variable); };
      if (std::none_of(again.begin(), again.end(), is_it))
        outer->contribute(e.variable, e.gradient);
    }
    return out;
  }
  std::vector<at::Tensor> with_same_numbers(const std::vector<at::Tensor>& inputs) {
    const auto one_at_a_time = random_numbers::lock();
    const struct put_back {
      const at::Tensor before = random_numbers::state();
      ~put_back() { random_numbers::set(before); }
    } at_end;
    random_numbers::set(random_);
    auto results = function_(inputs);
    if (!at::equal(random_numbers::state(), random_behind_)) {
      throw std::runtime_error(
          "a checkpointed function did not draw the same random numbers as in forward: others drew "
          "some meanwhile, outside of checkpointed functions");
    }
    return results;
  }
  void release_variables() override {
    for (torch::autograd::SavedVariable& saved : inputs_) saved.reset_data();
  }
  /// One per edge.
  template <class Find>
  torch::autograd::variable_list of_inputs(Find&& find,
                                           const std::vector<at::Tensor>& again) const {
    torch::autograd::variable_list out;
    for (const at::Tensor& t : again) {
      if (t.defined()) out.push_back(t.requires_grad() ? find(t) : at::Tensor());
    }
    return out;
  }

  checkpointed function_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  at::Tensor random_, random_behind_;  // states of the generator; undefined: it draws none
};

}  // namespace detail

inline std::vector<at::Tensor> checkpoint_all(checkpointed function,
                                              std::vector<at::Tensor> inputs) {
  // Recorded also if no input requires grad: parameters of the function may.
  const bool records = at::GradMode::is_enabled();
  std::shared_ptr<detail::checkpoint_node> node;
  if (records) {
    node = std::shared_ptr<detail::checkpoint_node>(new detail::checkpoint_node(function, inputs),
                                                    torch::autograd::deleteNode);
    torch::autograd::variable_list sent;
    for (const at::Tensor& t : inputs) {
      if (t.defined()) sent.push_back(t);
    }
    node->set_next_edges(torch::autograd::collect_next_edges(sent));
  }
  std::vector<at::Tensor> results;
  const auto compute = [&] {
    const at::AutoGradMode off(false);
    results = function(inputs);
  };
  if (!records) {
    compute();
    return results;
  }
  using detail::random_numbers;
  const std::type_info& type = function.target_type();
  at::Tensor from = random_numbers::state();
  const bool quiet = random_numbers::are_not_drawn_by(type);
  if (quiet) compute();
  if (!quiet || !at::equal(from, random_numbers::state())) {
    // Or something else drew meanwhile; then it is computed again.
    const auto one_at_a_time = random_numbers::lock();
    from = random_numbers::state();
    compute();
    at::Tensor to = random_numbers::state();
    const bool draws = !at::equal(from, to);
    random_numbers::note(type, draws);
    if (draws) node->draws(std::move(from), std::move(to));
  }
  for (at::Tensor& t : results) {
    if (!detail::is_differentiable(t)) continue;
    t = t.detach();  // it may be a parameter or an input, or a view of one
    torch::autograd::set_history(t, node);
  }
  return results;
}

}  // namespace weft::autograd
