// SPDX-License-Identifier: BSL-1.0
// Runs a part of a pass as a task of libtorch's engine, so that what nodes and hooks ask that
// engine for is there: Engine::queue_callback, whether an output is needed, whether the graph is
// kept, backward inside of backward.
//
//   engine_task ── Engine::execute ──► a graph of one node ──► work: many nodes of the pass
//
// The engine has no public way to make a task. So an engine of our own hands its tasks to the
// default one, and looks at them on the way.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd::detail {

/// The one node; it runs the work.
class engine_task_node final : public torch::autograd::Node {
 public:
  explicit engine_task_node(std::function<void(torch::autograd::GraphTask&)> work)
      : work_(std::move(work)) {}
  std::string name() const override { return "weft::backward"; }

  torch::autograd::GraphTask* task = nullptr;  // set before it runs

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    work_(*task);
    return {};
  }
  std::function<void(torch::autograd::GraphTask&)> work_;
};

class task_showing_engine final : public torch::autograd::Engine {
 public:
  static task_showing_engine& get() {
    static task_showing_engine& one = *new task_showing_engine;  // as libtorch's: to the very end
    return one;
  }
  c10::intrusive_ptr<at::ivalue::Future>
  execute_with_graph_task(const std::shared_ptr<torch::autograd::GraphTask>& task,
                          std::shared_ptr<torch::autograd::Node> root,
                          torch::autograd::InputBuffer&& inputs) override {
    static_cast<engine_task_node&>(*root).task = task.get();
    return get_default_engine().execute_with_graph_task(task, std::move(root), std::move(inputs));
  }
};

/// The task of one pass on one worker. Its work may be done in several runs, on different threads,
/// one after the other. Callbacks that were queued run at the end of the last one.
class engine_task {
 public:
  using exec_info =
      std::unordered_map<torch::autograd::Node*, torch::autograd::GraphTask::ExecInfo>;

  /// If not empty: the nodes that are needed. Outputs for other nodes are not computed.
  exec_info needed;

  /// Calls `work`, which returns whether this was the last run; then the callbacks run, too.
  /// Throws what work and callbacks throw. The thread's state is as in a pass of libtorch, and
  /// gradients are not recorded: work says itself if they are.
  template <class Work>
  void run(bool keep_graph, Work&& work) {
    std::exception_ptr thrown;
    const auto inside = [&](torch::autograd::GraphTask& task) {
      std::swap(task.exec_info_, needed);
      try {
        const bool last = work();
        take_callbacks(task);
        for (std::size_t i = 0; last && i < callbacks_.size(); ++i) {
          std::exchange(callbacks_[i], nullptr)();
          take_callbacks(task);  // that it has queued
        }
      } catch (...) {  // as it is: the engine lets through std::exception only
        thrown = std::current_exception();
        take_callbacks(task);
      }
      std::swap(task.exec_info_, needed);
    };
    const std::shared_ptr<engine_task_node> node(new engine_task_node(inside),
                                                 torch::autograd::deleteNode);
    node->add_input_metadata(nothing());
    task_showing_engine::get().execute({torch::autograd::Edge(node, 0)}, {nothing()}, keep_graph,
                                       false, true);
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  /// Or the engine would run them at the end of this run.
  void take_callbacks(torch::autograd::GraphTask& task) {
    const std::lock_guard lock(task.final_callbacks_lock_);
    std::vector<std::function<void()>>& queued = task.final_callbacks_;
    callbacks_.insert(callbacks_.end(), std::move_iterator(queued.begin()),
                      std::move_iterator(queued.end()));
    queued.clear();
  }
  /// What the one node gets.
  static const at::Tensor& nothing() {
    static const at::Tensor& empty = *new at::Tensor(at::zeros({0}));
    return empty;
  }

  std::vector<std::function<void()>> callbacks_;
};

}  // namespace weft::autograd::detail
