// SPDX-License-Identifier: BSL-1.0
// Runs this worker's part of a backward pass over `torch::autograd::Node`s, with the semantics of
// libtorch's engine, except that gradients go into a map instead of `.grad`. Hooks that libtorch
// runs after it changed `.grad` do not run, because nothing changes it.
//
//   seed(root) ─┐                                    ┌─► gradients()   per pass, per variable
//   seed(send) ─┴─► node ─► node ─► … ─► AccumulateGrad
//                                   └──► recv_node ────► the caller's sink, to be sent
//
// Per node, in libtorch's order: tensor hooks, retained gradients, pre hooks, the function, shape
// and dtype checks of its results, post hooks, release, the anomaly mode's search for NaN. Nodes
// run in a task of libtorch's engine (detail/engine_task.hpp). Callbacks that they queue there run
// when all needed nodes of this worker have run.
#pragma once

#include <weft/autograd/detail/engine_task.hpp>
#include <weft/autograd/impl/gradient_map.hpp>
#include <weft/autograd/input_buffer.hpp>
#include <weft/autograd/local_graph.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/wave.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::autograd {

/// Gradients that leave this worker: one per tensor of the message that required grad. If no
/// gradient came, it is undefined.
struct outgoing_gradients {
  peer_message to;
  torch::autograd::variable_list gradients;
};

/// The first error of a pass on this worker.
struct node_failure {
  std::string node;  ///< as `Node::name()`
  std::string text;  ///< of the exception that the node or its hook threw
  std::exception_ptr cause;
  node_index index = 0;
  bool misused = false;  ///< no exception: the graph leads out of the context
};

enum class executor_status {
  waiting,  ///< nothing is ready; it goes on after later seeds, or `complete`
  drained,  ///< every needed node has run
  failed,   ///< see `failure()`
  stopped,  ///< `stop()` was called
};

/// An input whose gradient is asked for.
struct wanted_input {
  node_index node = 0;
  std::uint32_t slot = 0;  ///< of the node
  std::size_t place = 0;   ///< in `captured()`
};

/// One pass on one worker, made at `launch`. One thread at a time uses it, except for `stop`.
/// Nodes run in the given thread-local state, else in the thread's own; gradients are recorded if
/// the plan's settings say so. Streams of devices other than the CPU are not followed yet.
class local_executor {
 public:
  using variable_list = torch::autograd::variable_list;

  /// `graph` is as the walk left it, and must outlive the executor. `plan` has launched. Gradients
  /// for the plan's own worker stay inside.
  local_executor(const local_graph& graph, const wave& plan,
                 std::optional<at::ThreadLocalState> state = {});

  /// After a plan that left nodes out at `launch` has completed, these nodes run, too. For other
  /// plans it does nothing. Do not call it during `evaluate_ready`.
  void complete(const wave& plan);
  /// Only these gradients are computed, and those that other workers need. Nodes that lead to none
  /// do not run. `capture`: they go to `captured()`; else into `gradients()`, and the inputs are
  /// leaves. Before the first `evaluate_ready`.
  void want(std::vector<wanted_input> inputs, bool capture);
  bool has_ready() const { return !ready_.empty(); }
  /// Whether `evaluate_ready` has something to do.
  bool has_work() const { return has_ready() || has_drained(); }

  /// Adds the gradient of a root. Seed all roots before the first `evaluate_ready`.
  void seed(root r);
  /// Adds the gradients of a sent message at `send`, the node of a `start`. If they do not fit the
  /// sent tensors, the pass fails.
  void seed(node_index send, torch::autograd::variable_list gradients);

  /// Runs until nothing is ready. Calls `sink(outgoing_gradients&&)` for each receive node, as soon
  /// as it ran. `failure()` has exceptions of nodes and hooks; those of `sink` pass through.
  template <class Sink>
  executor_status evaluate_ready(Sink&& sink);

  /// From any thread: `evaluate_ready` returns before its next node.
  void stop() noexcept { stop_.store(true, std::memory_order_relaxed); }

  /// Valid after `evaluate_ready` returned `failed`.
  const node_failure& failure() const { return *failure_; }
  /// The gradients of leaves in this pass. Merge them into the context's only if the pass commits.
  gradient_map& gradients() { return gradients_; }
  /// By `wanted_input::place`; undefined if the roots do not depend on the input.
  const variable_list& captured() const { return captured_; }
  std::size_t nodes_run() const { return nodes_run_; }
  /// The one whose node runs on this thread; null if none does.
  static local_executor* running() { return running_; }
  /// The pass is for some inputs only.
  bool is_pruned() const { return pruned_; }
  /// For a node that runs a pass of its own inside, and none that is pruned: a leaf's gradient, as
  /// if it came from here.
  void contribute(const at::Tensor& variable, const at::Tensor& gradient) {
    gradients_.accumulate(variable, gradient, settings_.graph);
  }

 private:
  using node_type = torch::autograd::Node;

  struct task {
    std::uint64_t sequence;
    node_index node;
    // Later forward operations first, as libtorch prefers; then as the walk met them.
    friend bool operator<(const task& a, const task& b) {
      return a.sequence != b.sequence ? a.sequence < b.sequence : a.node > b.node;
    }
  };

  void make_ready(node_index n) { ready_.push({graph_->node(n).sequence_nr(), n}); }
  void add(node_index n, std::uint32_t slot, at::Tensor&& gradient);
  void arrived(node_index n) {
    if (--dependencies_[n] == 0 && !is_open(n)) make_ready(n);
  }
  bool is_open(node_index n) const { return n < open_.size() && open_[n]; }
  bool has_drained() const { return open_.empty() && nodes_run_ == needed_; }
  template <class Sink>
  executor_status run_ready(Sink& sink);
  /// Finds out which nodes lead to what is wanted.
  void prune();
  [[nodiscard]] bool leads_to_wanted(node_index n) const { return !pruned_ || leads_to_wanted_[n]; }
  /// Takes the gradients of a node that are wanted.
  void capture(node_index n, variable_list& inputs);
  /// The node's function between its hooks; what it returns goes to its edges.
  std::optional<outgoing_gradients> evaluate(node_index n);
  variable_list call(node_index n, variable_list inputs);
  void accumulate(torch::autograd::AccumulateGrad& leaf, variable_list& inputs);
  void forward_to_self(outgoing_gradients&& gradients);
  void fail(node_type& node, std::string text, std::exception_ptr cause);

  const local_graph* graph_;
  std::vector<std::int64_t> dependencies_;  // still to come; of open nodes: minus those that came
  std::vector<bool> open_;  // what `wave::may_grow` said at launch; empty once complete
  std::vector<input_buffer> buffers_;
  std::vector<bool> is_root_;
  std::vector<bool> reached_;  // a gradient came, perhaps an undefined one; others do not run
  std::priority_queue<task> ready_;
  std::size_t needed_ = 0;  // once complete
  std::size_t nodes_run_ = 0;
  pass_settings settings_;
  worker_rank self_;
  context_id context_;
  detail::engine_task task_;
  bool pruned_ = false;
  bool captures_ = false;
  std::vector<wanted_input> wanted_;
  std::vector<bool> is_wanted_;        // by node, as the next
  std::vector<bool> leads_to_wanted_;  // such nodes run
  variable_list captured_;
  gradient_map gradients_;
  std::optional<at::ThreadLocalState> state_;
  std::optional<node_failure> failure_;
  std::atomic<bool> stop_{false};
  inline static thread_local local_executor* running_ = nullptr;
};

/// Runs a whole pass in the calling thread, for graphs without messages (or only with messages of
/// `self` to itself). If it succeeds, it adds to `into`; else it throws the node's exception.
void evaluate_local(std::vector<root> roots, pass_settings settings, gradient_map& into,
                    const send_table& sends = {}, worker_rank self = 0);

}  // namespace weft::autograd

#include <weft/autograd/impl/executor.hpp>
