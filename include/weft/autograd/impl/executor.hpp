// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bodies of `local_executor`.

#include <weft/autograd/executor.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <ATen/ops/isnan.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

namespace weft::autograd {

inline local_executor::local_executor(const local_graph& graph, const wave& plan,
                                      std::optional<at::ThreadLocalState> state)
    : graph_(&graph),
      dependencies_(graph.size()),
      open_(plan.phase() == wave_phase::discover ? graph.size() : 0),
      buffers_(graph.size()),
      is_root_(graph.size()),
      reached_(graph.size()),
      needed_(plan.needed_nodes()),
      settings_(plan.settings()),
      self_(plan.self()),
      context_(plan.pass().context),
      state_(std::move(state)) {
  const auto counts = plan.dependencies();
  for (node_index n = 0; n < graph.size(); ++n) {
    if (plan.may_grow(n)) {
      open_[n] = true;
    } else if (n < counts.size()) {
      dependencies_[n] = counts[n];
    }
  }
}

inline void local_executor::complete(const wave& plan) {
  if (open_.empty()) return;
  const auto counts = plan.dependencies();
  const std::vector<bool> open = std::exchange(open_, {});
  needed_ = plan.needed_nodes();
  for (node_index n = 0; n < counts.size(); ++n) {
    if (!open[n]) continue;
    dependencies_[n] += counts[n];
    const bool entered = counts[n] != 0 || is_root_[n];
    if (dependencies_[n] == 0 && entered) make_ready(n);
  }
}

inline void local_executor::want(std::vector<wanted_input> inputs, bool capture) {
  pruned_ = true;
  captures_ = capture;
  wanted_ = std::move(inputs);
  std::size_t places = 0;
  for (const wanted_input& w : wanted_) places = std::max(places, w.place + 1);
  captured_.resize(places);
}

inline void local_executor::prune() {
  if (!pruned_ || !leads_to_wanted_.empty()) return;
  std::vector<bool> known(graph_->size());
  leads_to_wanted_.assign(graph_->size(), false);
  is_wanted_.assign(graph_->size(), false);
  for (const wanted_input& w : wanted_) is_wanted_[w.node] = true;
  struct place {
    node_index node;
    std::size_t edge;
  };
  std::vector<place> path;
  const auto enter = [&](node_index n) {
    if (known[n]) return;
    known[n] = true;
    leads_to_wanted_[n] = graph_->receive(n).has_value() || (is_wanted_[n] && !captures_);
    path.push_back({n, 0});
  };
  for (node_index first = 0; first < graph_->size(); ++first) {
    enter(first);
    while (!path.empty()) {
      const auto [n, edge] = path.back();
      const auto& edges = graph_->node(n).next_edges();
      if (edge < edges.size()) {
        ++path.back().edge;
        if (edges[edge].is_valid()) enter(graph_->index_of(edges[edge].function.get()));
        continue;
      }
      path.pop_back();
      for (const auto& e : edges) {
        if (!e.is_valid()) continue;
        const node_index next = graph_->index_of(e.function.get());
        if (leads_to_wanted_[next] || is_wanted_[next]) leads_to_wanted_[n] = true;
      }
    }
  }
  task_.needed.clear();
  for (node_index n = 0; n < graph_->size(); ++n) {
    if (leads_to_wanted_[n] || is_wanted_[n]) task_.needed[&graph_->node(n)].needed_ = true;
  }
}

inline void local_executor::capture(node_index n, variable_list& inputs) {
  if (!captures_ || !is_wanted_[n]) return;
  for (const wanted_input& w : wanted_) {
    if (w.node != n) continue;
    const at::Tensor& gradient = inputs.at(w.slot);
    // The user may change what is returned.
    const bool own = !gradient.defined() || owns_its_memory(gradient);
    captured_[w.place] = own ? gradient : gradient.clone();
  }
}

inline void local_executor::add(node_index n, std::uint32_t slot, at::Tensor&& gradient) {
  reached_[n] = true;
  buffers_[n].add(slot, std::move(gradient));
}

inline void local_executor::seed(root r) {
  const node_index n = graph_->index_of(r.edge.function.get());
  const at::AutoGradMode mode(settings_.graph == gradient_graph::create);
  add(n, r.edge.input_nr, std::move(r.gradient));
  if (is_root_[n]) return;
  is_root_[n] = true;
  if (dependencies_[n] == 0 && !is_open(n)) make_ready(n);
}

inline void local_executor::seed(node_index send, variable_list gradients) {
  auto& node = static_cast<send_node&>(graph_->node(send));
  if (std::string why = node.mismatch(gradients); !why.empty()) {
    return fail(node, why, std::make_exception_ptr(std::runtime_error(why)));
  }
  for (std::uint32_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) add(send, i, std::move(gradients[i]));
  }
  make_ready(send);
}

template <class Sink>
executor_status local_executor::evaluate_ready(Sink&& sink) {
  std::optional<at::ThreadLocalStateGuard> guard;
  if (state_) guard.emplace(*state_);
  auto status = executor_status::waiting;
  std::exception_ptr from_sink;
  try {
    task_.run(settings_.retention == graph_retention::retain, [&] {
      try {
        status = run_ready(sink);
      } catch (...) {  // kept, and thrown below
        from_sink = std::current_exception();
      }
      return !from_sink && status == executor_status::drained;
    });
  } catch (...) {
    status = executor_status::failed;
    std::string text = "an exception of unknown type";
    try {
      throw;
    } catch (const std::exception& e) {
      text = weft::detail::words_of(e);
    } catch (...) {  // it has no words
    }
    if (!failure_) {
      failure_ = node_failure{"a callback of Engine::queue_callback", std::move(text),
                              std::current_exception()};
    }
  }
  if (from_sink) std::rethrow_exception(from_sink);
  return status;
}

template <class Sink>
executor_status local_executor::run_ready(Sink& sink) {
  const at::AutoGradMode mode(settings_.graph == gradient_graph::create);
  struct restored {
    local_executor* before = std::exchange(running_, nullptr);
    ~restored() { running_ = before; }
  } restore;
  running_ = this;
  prune();
  while (!failure_) {
    if (stop_.load(std::memory_order_relaxed)) return executor_status::stopped;
    if (ready_.empty()) return has_drained() ? executor_status::drained : executor_status::waiting;
    const node_index n = ready_.top().node;
    ready_.pop();
    ++nodes_run_;
    if (auto leaving = evaluate(n)) {
      if (leaving->to.peer == self_) {
        forward_to_self(std::move(*leaving));
      } else {
        sink(std::move(*leaving));
      }
    }
  }
  return executor_status::failed;
}

inline std::optional<outgoing_gradients> local_executor::evaluate(node_index n) {
  node_type& node = graph_->node(n);
  try {
    variable_list inputs = buffers_[n].take(node.num_inputs());
    variable_list results;
    const bool runs = reached_[n] && leads_to_wanted(n);
    if (runs) {
      results = call(n, std::move(inputs));
    } else if (reached_[n] && captures_ && is_wanted_[n]) {
      for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
      capture(n, inputs);
    }
    if (const auto message = graph_->receive(n)) {
      if (std::string why = wave::misuse_of(*message, context_); !why.empty()) {
        if (runs) fail(node, std::move(why), nullptr);
        if (runs) failure_->misused = true;
        return std::nullopt;
      }
      results.resize(node.num_inputs());
      return {{*message, std::move(results)}};
    }
    if (runs && settings_.retention == graph_retention::release) node.release_variables();
    using torch::autograd::AnomalyMode;
    const bool search = AnomalyMode::is_enabled() && AnomalyMode::should_check_nan();
    results.resize(node.num_outputs());
    for (std::uint32_t i = 0; i < results.size(); ++i) {
      if (search && results[i].defined() && at::isnan(results[i])._is_any_true().item<bool>()) {
        throw std::runtime_error("returned NaN as gradient " + std::to_string(i));
      }
      const auto& edge = node.next_edge(i);
      if (!edge.is_valid()) continue;
      const node_index next = graph_->index_of(edge.function.get());
      // What was sent and not used there leads nowhere, as in one process it would not.
      const bool leads_on = runs && (results[i].defined() || !graph_->is_send(n));
      if (leads_on) add(next, edge.input_nr, std::move(results[i]));
      arrived(next);
    }
  } catch (const std::exception& e) {
    fail(node, weft::detail::words_of(e), std::current_exception());
  } catch (...) {  // kept as the cause
    fail(node, "an exception of unknown type", std::current_exception());
  }
  return std::nullopt;
}

inline auto local_executor::call(node_index n, variable_list inputs) -> variable_list {
  node_type& node = graph_->node(n);
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  // libtorch captures before the hooks if the node leads to another input that is wanted.
  capture(n, inputs);
  if (auto& retained = node.retains_grad_hooks(); !retained.empty()) {
    for (std::size_t i = 0; i < node.num_inputs(); ++i) {  // in order of the tensors they belong to
      if (const auto hook = retained.find(i); hook != retained.end()) {
        inputs = (*hook->second)(inputs);
      }
    }
  }
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);

  const bool has_post_hooks = !node.post_hooks().empty();
  variable_list for_hooks;
  if (has_post_hooks) for_hooks = inputs;
  variable_list results;
  if (auto* leaf = graph_->leaf(n)) {
    // Hooks first, so that it shows whether they kept the gradient.
    for (const auto& hook : node.post_hooks()) results = (*hook)(results, for_hooks);
    for_hooks.clear();
    accumulate(*leaf, inputs);
    return results;
  } else if (graph_->receive(n)) {
    // The gradients leave; post hooks see that there are no outputs.
    for (const auto& hook : node.post_hooks()) (*hook)({}, for_hooks);
    return inputs;
  } else {
    if (settings_.retention == graph_retention::release) node.will_release_variables();
    results = node(std::move(inputs));
    torch::autograd::validate_outputs(node.next_edges(), results, [&](const std::string& what) {
      return node.name() + " returned an " + what;
    });
  }
  for (const auto& hook : node.post_hooks()) results = (*hook)(results, for_hooks);
  return results;
}

inline void local_executor::accumulate(torch::autograd::AccumulateGrad& leaf,
                                       variable_list& inputs) {
  const at::Tensor gradient = std::move(inputs.at(0));
  if (!gradient.defined()) return;
  if (leaf.variable.grad_fn()) {
    throw std::logic_error("a leaf variable became the result of an operation");
  }
  if (!leaf.variable.requires_grad()) return;
  gradients_.accumulate(leaf.variable, gradient, settings_.graph);
}

inline void local_executor::forward_to_self(outgoing_gradients&& leaving) {
  const auto n = graph_->known_send(leaving.to.message);
  if (!n) throw std::logic_error("weft: the walk did not meet a message of this worker to itself");
  auto& node = graph_->node(*n);
  if (leaving.gradients.size() != node.num_inputs()) {
    const std::string why =
        "a message of this worker to itself arrived with other tensors than were sent";
    return fail(node, why, std::make_exception_ptr(std::runtime_error(why)));
  }
  for (std::uint32_t i = 0; i < leaving.gradients.size(); ++i) {
    if (leaving.gradients[i].defined()) add(*n, i, std::move(leaving.gradients[i]));
  }
  arrived(*n);
}

inline void local_executor::fail(node_type& node, std::string text, std::exception_ptr cause) {
  if (failure_) return;  // the first one wins
  failure_ = node_failure{node.name(), std::move(text), std::move(cause), graph_->index_of(&node)};
  if (torch::autograd::AnomalyMode::is_enabled()) node.metadata()->print_stack(node.name());
}

inline void evaluate_local(std::vector<root> roots, pass_settings settings, gradient_map& into,
                           const send_table& sends, worker_rank self) {
  local_graph nodes(sends);
  wave_input::begin start_at;
  for (const root& r : roots) start_at.roots.push_back(nodes.index(r.edge.function));
  wave plan({0, self, 0}, self, self + 1, settings);
  plan.walk_in_pieces_of(std::numeric_limits<std::size_t>::max());
  for (const wave_output::any& out : plan.step(start_at, nodes)) {
    if (const auto* t = std::get_if<wave_output::transmit>(&out)) {
      throw std::invalid_argument("weft: backward: a root depends on worker " +
                                  std::to_string(t->to));
    }
    if (const auto* a = std::get_if<wave_output::aborted>(&out)) {
      throw std::invalid_argument("weft: " + a->text);
    }
  }
  local_executor executor(nodes, plan);
  for (root& r : roots) executor.seed(std::move(r));
  const auto nowhere = [](outgoing_gradients&&) {};
  if (executor.evaluate_ready(nowhere) == executor_status::failed) {
    std::rethrow_exception(executor.failure().cause);
  }
  into.merge(std::move(executor.gradients()));
}

}  // namespace weft::autograd
