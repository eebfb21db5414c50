// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bodies of `wave`: how it walks over the graph, and what runs then.

#include <weft/autograd/wave.hpp>

namespace weft::autograd {

/// A walk is over, and what it leads to has been asked.
template <graph G>
void wave::walked(G& g, const walk_state& done, outputs& out) {
  switch (done.cause) {
  case walk_cause::begin: {
    maybe_settle(out);
    maybe_run(g, out);
    const bool all_leaves =
        settings_.leaves == leaf_gradients::all;  // or what is wanted is unknown
    if (phase_ == wave_phase::discover && all_leaves) run_early(g, done.roots, out);
    return;
  }
  case walk_cause::need: {
    maybe_run(g, out);
    // Whether this worker waits for go, the ack of its engagement says.
    if (!done.engages && done.reply == need_reply::own) send_ack(done.need, {self_}, {}, out);
    if (const auto log = asked_.find(done.need.from); log != asked_.end()) {
      take_acks(done.need.from, log->second);
    }
    return maybe_settle(out);
  }
  case walk_cause::everything:
    return enter_run_phase(out);
  }
}

template <graph G>
void wave::walk_piece(G& g, outputs& out) {
  std::vector<node_index>& stack = walk_->stack;
  const auto edge_to = [&](node_index n) {
    const bool first = visit(n);
    ++dependencies_[n];
    if (first) stack.push_back(n);
  };
  for (std::size_t i = 0; i < piece_ && !stack.empty(); ++i) {
    const node_index n = stack.back();
    stack.pop_back();
    const auto elsewhere = follow(g, n, edge_to);
    if (!elsewhere) continue;
    if (std::string why = misuse_of(*elsewhere, pass_.context); !why.empty()) {
      if (opens_) continue;
      return abort({self_, abort_reason::misused, std::move(why)}, self_, out);
    }
    if (elsewhere->peer == self_) {
      return abort({self_, abort_reason::refused,
                    "worker " + std::to_string(self_) + " has lost its message " +
                        std::to_string(elsewhere->message) + " to itself"},
                   self_, out);
    }
    walk_->asks[elsewhere->peer].push_back(elsewhere->message);
  }
  if (!stack.empty()) {
    out.emplace_back(wave_output::walks{});
    return;
  }
  walk_state done = std::move(*walk_);
  walk_.reset();
  for (auto& [peer, messages] : done.asks) {
    if (opens_) {
      leads_to_.insert(peer);
      continue;
    }
    need_log& log = asked_[peer];
    const bool back = parent_ && parent_->from == peer;
    if (!back) {
      log.open.insert(log.next);
      ++deficit_;
    }
    const auto reply = back ? need_reply::none : need_reply::own;
    send(peer, need_message{log.next++, settings_, std::move(messages), reply}, out);
  }
  walked(g, done, out);
}

template <graph G, class F>
std::optional<peer_message> wave::follow(G& g, node_index n, F&& visit) const {
  const auto received = g.receive(n);
  if (!received) {
    g.next(n, visit);
    return std::nullopt;
  }
  if (received->peer != self_ || !misuse_of(*received, pass_.context).empty()) return received;
  const auto point = g.send(received->message);
  if (!point || point->peer != self_) return received;
  visit(point->node);
  return std::nullopt;
}

inline std::string wave::misuse_of(const peer_message& m, context_id context) {
  if (m.message != 0 && m.context == context) return {};
  const std::string tensor = "a tensor that came from worker " + std::to_string(m.peer);
  if (m.message == 0) {
    return tensor + " was not recorded, so its history there is lost: make the call inside "
                    "autograd::with_context, "
                    "or detach() its result";
  }
  return tensor +
         " belongs to another autograd context, and gradients do not flow from one context into "
         "another: detach() tensors that you carry over, or compute them anew inside this scope";
}

inline bool wave::visit(node_index n) {
  if (n >= visited_.size()) {
    visited_.resize(n + std::size_t{1});
    dependencies_.resize(n + std::size_t{1});
  }
  if (visited_[n]) return false;
  visited_[n] = true;
  ++needed_nodes_;
  return true;
}

template <graph G>
void wave::maybe_run(G& g, outputs& out) {
  if (phase_ == wave_phase::discover && g.messages(self_) == needed_.size()) enter_run_phase(out);
}

template <graph G>
void wave::run_early(G& g, std::span<const node_index> roots, outputs& out) {
  const std::size_t affordable = 4 * std::min(needed_nodes_ + 64, piece_);
  if (g.messages(self_) > affordable) return;
  std::vector<node_index> stack;
  std::size_t met = 0;
  const auto meet = [&](node_index n) {
    if (n >= open_.size()) open_.resize(n + std::size_t{1});
    if (open_[n]) return;
    stack.push_back(n);
    open_[n] = true;
    ++met;
  };
  g.each_send([&](message_id, const send_point& p) {
    if (p.peer != self_) meet(p.node);
  });
  while (!stack.empty() && met <= affordable) {
    const node_index n = stack.back();
    stack.pop_back();
    follow(g, n, meet);
  }
  const auto grows = [&](node_index n) { return may_grow(n); };
  if (!stack.empty() || std::all_of(roots.begin(), roots.end(), grows)) return open_.clear();
  g.freeze();
  out.emplace_back(wave_output::launch{});
}

template <graph G>
void wave::begin_everywhere(G& g, std::span<const node_index> roots, outputs& out) {
  phase_ = wave_phase::discover;
  std::vector<node_index> stack;
  for (node_index n : roots) {
    if (visit(n)) stack.push_back(n);
  }
  g.each_send([&](message_id id, const send_point& p) {
    if (p.peer == self_) return;
    needed_.emplace(id, needed_send{.node = p.node, .peer = p.peer});
    if (visit(p.node)) stack.push_back(p.node);
  });
  walk(g, {.cause = walk_cause::everything, .stack = std::move(stack)}, out);
}

}  // namespace weft::autograd
