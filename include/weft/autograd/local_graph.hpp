// SPDX-License-Identifier: BSL-1.0
// libtorch's graph on one worker. `wave` walks it; nodes get numbers in the order of the walk.
#pragma once

#include <weft/autograd/nodes.hpp>
#include <weft/autograd/wave.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd {

/// A pass begins here: a gradient for one input of one node.
struct root {
  torch::autograd::Edge edge;
  at::Tensor gradient;
};

/// The roots of `tensors`. `gradients` is empty, or has one per tensor. If a gradient is undefined,
/// or none is given, it is 1; then the tensor must be real and have one element. Throws
/// `std::invalid_argument` with a sentence.
std::vector<root> roots_of(std::span<const at::Tensor> tensors,
                           std::span<const at::Tensor> gradients = {});

/// The nodes that one pass meets on this worker; it keeps them alive. Models `graph`. The walk runs
/// under the context's lock, because it reads the send table. From `launch` on, the graph is
/// constant: after `freeze` the walk only reads it, while nodes run without the lock.
class local_graph {
 public:
  /// `sends` must outlive the walk.
  explicit local_graph(const send_table& sends) : sends_(&sends) {}

  /// The node's number. A node that was not met before gets a new number.
  node_index index(const std::shared_ptr<torch::autograd::Node>& node);

  template <class F>
  void next(node_index n, F&& visit) {
    const std::shared_ptr<torch::autograd::Node> node = nodes_[n].node;
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid()) visit(index(edge.function));
    }
  }
  std::optional<peer_message> receive(node_index n) const {
    if (const recv_node* r = nodes_[n].receive) return r->where();
    return std::nullopt;
  }
  std::optional<send_point> send(message_id id);
  std::size_t messages(worker_rank self) const { return sends_->size_without(self); }
  template <class F>
  void each_send(F&& visit) {
    sends_->for_each([&](message_id id) {
      if (const auto point = send(id)) visit(*point);
    });
  }
  /// From now on `send` finds only nodes that it has found before.
  void freeze() { frozen_ = true; }

  std::size_t size() const { return nodes_.size(); }
  torch::autograd::Node& node(node_index n) const { return *nodes_[n].node; }
  /// The node as a leaf; null if it is none.
  torch::autograd::AccumulateGrad* leaf(node_index n) const { return nodes_[n].leaf; }
  /// The number of a node that was met.
  node_index index_of(const torch::autograd::Node* node) const { return index_.at(node); }
  /// The send node of a message, if `send` has found it before.
  std::optional<node_index> known_send(message_id id) const {
    const auto found = met_sends_.find(id);
    if (found == met_sends_.end()) return std::nullopt;
    return found->second;
  }

 private:
  struct met {
    std::shared_ptr<torch::autograd::Node> node;
    const recv_node* receive = nullptr;
    torch::autograd::AccumulateGrad* leaf = nullptr;
  };

  const send_table* sends_;
  std::vector<met> nodes_;
  std::unordered_map<const torch::autograd::Node*, node_index> index_;  // for look-up only
  std::map<message_id, node_index> met_sends_;
  bool frozen_ = false;
};

inline node_index local_graph::index(const std::shared_ptr<torch::autograd::Node>& node) {
  const auto [found, fresh] =
      index_.try_emplace(node.get(), static_cast<node_index>(nodes_.size()));
  if (fresh) {
    nodes_.push_back({node, dynamic_cast<const recv_node*>(node.get()),
                      dynamic_cast<torch::autograd::AccumulateGrad*>(node.get())});
  }
  return found->second;
}

inline std::optional<send_point> local_graph::send(message_id id) {
  if (const auto known = known_send(id)) {
    return send_point{*known, static_cast<const send_node&>(node(*known)).where().peer};
  }
  const auto node = frozen_ ? nullptr : sends_->find(id);
  if (!node) return std::nullopt;
  const node_index n = index(node);
  met_sends_.emplace(id, n);
  return send_point{n, node->where().peer};
}

inline std::vector<root> roots_of(std::span<const at::Tensor> tensors,
                                  std::span<const at::Tensor> gradients) {
  const auto refuse = [](std::size_t i, const std::string& why) {
    throw std::invalid_argument("weft: backward: root " + std::to_string(i) + " " + why);
  };
  if (tensors.empty()) throw std::invalid_argument("weft: backward: no root was given");
  if (!gradients.empty() && gradients.size() != tensors.size()) {
    throw std::invalid_argument("weft: backward: " + std::to_string(gradients.size()) +
                                " gradients for " + std::to_string(tensors.size()) + " roots");
  }
  std::vector<root> roots;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    if (!t.defined()) refuse(i, "is undefined");
    if (!t.requires_grad()) refuse(i, "does not require grad");
    at::Tensor gradient = gradients.empty() ? at::Tensor() : gradients[i];
    if (!gradient.defined()) {
      if (t.numel() != 1) refuse(i, "is not a scalar and has no gradient given");
      if (t.is_complex()) refuse(i, "is complex and has no gradient given");
      gradient = at::ones_like(t.detach());
    } else if (gradient.sizes() != t.sizes()) {
      refuse(i, "and its gradient differ in shape");
    } else if (gradient.scalar_type() != t.scalar_type()) {
      refuse(i, "and its gradient differ in dtype");
    }
    // The user's handle as it is: whoever would take its memory over sees that it is not alone.
    roots.push_back({torch::autograd::impl::gradient_edge(t), std::move(gradient)});
  }
  return roots;
}

}  // namespace weft::autograd
