// SPDX-License-Identifier: BSL-1.0
// libtorch's graph on one worker. `wave` walks it; nodes get numbers in the order of the walk.
#pragma once

#include <weft/autograd/nodes.hpp>
#include <weft/autograd/roots.hpp>
#include <weft/autograd/wave.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::autograd {

/// The nodes that one pass meets on this worker. It keeps roots and send nodes alive, and these the
/// others. Models `graph`. The walk runs under the context's lock, because it reads the send table.
/// From `launch` on, the graph is constant: after `freeze` the walk only reads it, while nodes run
/// without the lock.
class local_graph {
 public:
  /// `sends` must outlive the walk.
  explicit local_graph(const send_table& sends) : sends_(&sends) {}

  /// The number of a root or send node, which it keeps. One that was not met before gets a new one.
  node_index index(const std::shared_ptr<torch::autograd::Node>& node) {
    owners_.push_back(node);
    return number(node.get());
  }
  /// Hands over what keeps the nodes alive.
  std::vector<std::shared_ptr<torch::autograd::Node>> release_owners() {
    return std::exchange(owners_, {});
  }

  template <class F>
  void next(node_index n, F&& visit) {
    const torch::autograd::Node& node = *nodes_[n].node;
    for (const auto& edge : node.next_edges()) {
      if (edge.is_valid()) visit(number(edge.function.get()));
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
      if (const auto point = send(id)) visit(id, *point);
    });
  }
  /// From now on `send` finds only nodes that it has found before.
  void freeze() { frozen_ = true; }

  std::size_t size() const { return nodes_.size(); }
  torch::autograd::Node& node(node_index n) const { return *nodes_[n].node; }
  bool is_send(node_index n) const { return nodes_[n].send; }
  /// The node as a leaf; null if it is none.
  torch::autograd::AccumulateGrad* leaf(node_index n) const { return nodes_[n].leaf; }
  /// The number of a node, if it was met.
  std::optional<node_index> find(const torch::autograd::Node* node) const {
    const auto found = index_.find(node);
    if (found == index_.end()) return std::nullopt;
    return found->second;
  }
  /// The number of a node that was met.
  node_index index_of(const torch::autograd::Node* node) const { return index_.at(node); }
  /// The send node of a message, if `send` has found it before.
  std::optional<node_index> known_send(message_id id) const {
    const auto found = met_sends_.find(id);
    if (found == met_sends_.end()) return std::nullopt;
    return found->second;
  }

 private:
  node_index number(torch::autograd::Node* node);

  struct met {
    torch::autograd::Node* node = nullptr;
    const recv_node* receive = nullptr;
    bool send = false;
    torch::autograd::AccumulateGrad* leaf = nullptr;
  };

  const send_table* sends_;
  std::vector<std::shared_ptr<torch::autograd::Node>> owners_;
  std::vector<met> nodes_;
  std::unordered_map<const torch::autograd::Node*, node_index> index_;  // for look-up only
  std::map<message_id, node_index> met_sends_;
  bool frozen_ = false;
};

inline node_index local_graph::number(torch::autograd::Node* node) {
  const auto [found, fresh] = index_.try_emplace(node, static_cast<node_index>(nodes_.size()));
  if (fresh) {
    nodes_.push_back({node, dynamic_cast<const recv_node*>(node),
                      dynamic_cast<const send_node*>(node) != nullptr,
                      dynamic_cast<torch::autograd::AccumulateGrad*>(node)});
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

}  // namespace weft::autograd
