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
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::autograd {

namespace detail {

/// The state of the CPU's default generator, which is put back at the end of the scope.
class random_numbers {
 public:
  static at::Tensor now() {
    at::Generator g = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard lock(g.mutex());
    return g.get_state();
  }
  explicit random_numbers(const at::Tensor& as) : one_at_a_time_(mutex_), before_(now()) {
    set(as);
  }
  random_numbers(const random_numbers&) = delete;
  random_numbers& operator=(const random_numbers&) = delete;
  ~random_numbers() { set(before_); }

 private:
  static void set(const at::Tensor& state) {
    at::Generator g = at::globalContext().defaultGenerator(at::kCPU);
    const std::lock_guard lock(g.mutex());
    g.set_state(state);
  }
  // Of the process, or what one puts back another has set.
  WEFT_PROCESS_WIDE inline static std::recursive_mutex mutex_;
  const std::lock_guard<std::recursive_mutex> one_at_a_time_;
  at::Tensor before_;
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
  /// The function draws random numbers, from here on.
  void draws_from(at::Tensor state) { random_ = std::move(state); }
  std::string name() const override { return "weft::checkpoint"; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw std::logic_error("a checkpointed function has no second derivatives");
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
      std::optional<random_numbers> same;
      if (random_.defined()) same.emplace(random_);
      results = function_(again);
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
    local_executor* const outer = local_executor::running();
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
  at::Tensor random_;  // undefined: it draws none
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
  const at::Tensor random = records ? detail::random_numbers::now() : at::Tensor();
  {
    const at::AutoGradMode off(false);
    results = function(inputs);
  }
  if (!records) return results;
  if (!at::equal(random, detail::random_numbers::now())) node->draws_from(random);
  for (at::Tensor& t : results) {
    if (!detail::is_differentiable(t)) continue;
    t = t.detach();  // it may be a parameter or an input, or a view of one
    torch::autograd::set_history(t, node);
  }
  return results;
}

}  // namespace weft::autograd
