// SPDX-License-Identifier: BSL-1.0
// The two ends of a forward message in the autograd graph, and the table of a context's send nodes.
//
//   forward sender                       forward receiver
//   leaves ◄── ops ◄── send_node  ─ ─ ─  recv_node ◄── ops ◄── loss
//                      gradients  ◄─ ─ ─ gradients             (backward)
#pragma once

#include <weft/autograd/messages.hpp>
#include <weft/autograd/wave.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::autograd {

/// The call that a message belonged to.
struct sending_call {
  std::uint64_t function = 0;  ///< its id; 0: unknown
  bool request = false;        ///< else its reply
};

/// The node at which gradients of a sent message enter the sender's graph. It passes each on to the
/// gradient edge of its tensor. It has one slot per sent tensor that requires grad, in order.
class send_node final : public torch::autograd::Node {
 public:
  explicit send_node(peer_message where, sending_call call = {}) : where_(where), call_(call) {}

  /// The forward receiver and the message.
  const peer_message& where() const { return where_; }
  const sending_call& call() const { return call_; }

  /// If these gradients, taken from the wire, do not fit the sent tensors, a sentence; else empty.
  /// Undefined gradients always fit. A sparse gradient may stand for a dense one.
  std::string mismatch(const torch::autograd::variable_list& gradients) const;

  std::string name() const override {
    return "message " + std::to_string(where_.message) + " to worker " +
           std::to_string(where_.peer);
  }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }

 private:
  peer_message where_;
  sending_call call_;
};

/// The node at which the graph of a received message ends: the grad_fn of its tensors. weft's
/// executor takes its inputs and sends them. libtorch's engine cannot: it gets an exception that
/// says so. If the message was not recorded (number 0), the exception says what to do instead.
class recv_node final : public torch::autograd::Node {
 public:
  explicit recv_node(peer_message where) : where_(where) {}

  /// The forward sender and the message.
  const peer_message& where() const { return where_; }

  std::string name() const override {
    if (where_.message == 0) return "unrecorded message from worker " + std::to_string(where_.peer);
    return "message " + std::to_string(where_.message) + " from worker " +
           std::to_string(where_.peer);
  }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    if (where_.message == 0) {
      throw std::logic_error(
          "weft: this tensor was computed on worker " + std::to_string(where_.peer) +
          " and came without its history, so gradients would be lost: make the call inside "
          "weft::autograd::with_context and use backward of its context, or detach() the result");
    }
    throw std::logic_error("weft: this tensor came in " + name() +
                           "; its graph continues there, use backward of the autograd context");
  }

 private:
  peer_message where_;
};

/// Records that `tensors` leave in the message and to the peer of `where`. Null if none requires
/// grad, or gradients are switched off in this thread. Throws `c10::Error` for a tensor that
/// autograd cannot follow. Integral and undefined tensors may be among them; they have no slot.
std::shared_ptr<send_node> record_send(std::span<const at::Tensor> tensors, peer_message where,
                                       sending_call call = {});

/// Makes a new recv node the grad_fn of `tensors`. These are the tensors that require grad at the
/// sender, in order; they must be fresh. A hostile peer may send anything: if one cannot have a
/// gradient (its dtype, or it has history already), it throws `std::invalid_argument`.
std::shared_ptr<recv_node> record_receive(std::span<const at::Tensor> tensors, peer_message where);

/// Prepares a message's tensors that required grad at their sender. If the message was recorded,
/// they become ends of its graph. If not, they become leaves; those that were `computed` at the
/// sender get a history that only throws and says so. Throws as `record_receive` does.
inline void receive(std::span<at::Tensor> tensors, const std::vector<bool>& computed,
                    peer_message where);

/// The send nodes of one context, by message. Not thread-safe: guard it by the context's lock.
class send_table {
 public:
  void add(std::shared_ptr<send_node> node) {
    const peer_message to = node->where();
    if (nodes_.insert_or_assign(to.message, std::move(node)).second) ++to_[to.peer];
  }
  /// The node, to be destroyed without the lock; null if there is none.
  std::shared_ptr<send_node> remove(message_id id) {
    auto found = nodes_.extract(id);
    if (!found) return nullptr;
    --to_[found.mapped()->where().peer];
    return std::move(found.mapped());
  }
  std::shared_ptr<send_node> find(message_id id) const {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? nullptr : found->second;
  }
  std::size_t size() const { return nodes_.size(); }
  /// The number of nodes whose message went to another worker than `self`.
  std::size_t size_without(worker_rank self) const {
    const auto own = to_.find(self);
    return nodes_.size() - (own == to_.end() ? 0 : own->second);
  }
  /// Calls `visit` for each message, in order.
  template <class F>
  void for_each(F&& visit) const {
    for (const auto& [id, node] : nodes_) visit(id);
  }

 private:
  std::map<message_id, std::shared_ptr<send_node>> nodes_;
  std::map<worker_rank, std::size_t> to_;  // how many to each
};

inline std::string send_node::mismatch(const torch::autograd::variable_list& gradients) const {
  if (gradients.size() != num_inputs()) {
    return std::to_string(gradients.size()) + " gradients for " + std::to_string(num_inputs()) +
           " tensors";
  }
  for (std::uint32_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& g = gradients[i];
    if (!g.defined()) continue;
    const auto& expected = input_metadata(i);
    const auto at = "gradient " + std::to_string(i) + " has another ";
    if (!expected.is_same_shape(g)) return at + "shape than its tensor";
    if (g.scalar_type() != c10::typeMetaToScalarType(expected.dtype())) {
      return at + "dtype than its tensor";
    }
    if (g.device() != expected.device()) return at + "device than its tensor";
  }
  return {};
}

inline std::shared_ptr<send_node> record_send(std::span<const at::Tensor> tensors,
                                              peer_message where, sending_call call) {
  torch::autograd::variable_list sent;
  for (const at::Tensor& t : tensors) {
    if (t.defined() && t.requires_grad()) sent.push_back(t);
  }
  if (!torch::autograd::compute_requires_grad(sent)) return nullptr;
  // deleteNode: long chains are destroyed without recursion.
  std::shared_ptr<send_node> node(new send_node(where, call), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(sent));
  for (const at::Tensor& t : sent) node->add_input_metadata(t);
  return node;
}

inline std::shared_ptr<recv_node> record_receive(std::span<const at::Tensor> tensors,
                                                 peer_message where) {
  for (const at::Tensor& t : tensors) {
    if (!t.defined() || t.requires_grad() ||
        !torch::autograd::isDifferentiableType(t.scalar_type())) {
      throw std::invalid_argument("weft: a received tensor cannot have a gradient: " +
                                  (t.defined() ? t.toString() : std::string("undefined")));
    }
  }
  std::shared_ptr<recv_node> node(new recv_node(where), torch::autograd::deleteNode);
  for (const at::Tensor& t : tensors) torch::autograd::set_history(t, node);
  return node;
}

inline void receive(std::span<at::Tensor> tensors, const std::vector<bool>& computed,
                    peer_message where) {
  if (where.message != 0) {
    record_receive(tensors, where);
    return;
  }
  std::vector<at::Tensor> without_history;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (computed[i]) {
      without_history.push_back(tensors[i]);
    } else {
      tensors[i].set_requires_grad(true);
    }
  }
  if (!without_history.empty()) record_receive(without_history, where);
}

}  // namespace weft::autograd
