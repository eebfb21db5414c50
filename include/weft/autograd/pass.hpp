// SPDX-License-Identifier: BSL-1.0
// One backward pass on one worker: the wave plans it, walking the graph, and the executor runs it.
// The service around it moves frames, holds the lock, and lends pool threads.
//
//   under the context's lock          on a pool thread, no lock held
//   begin / arrive / lost / abort
//   claim() == true ───────────────►  evaluate(sink)  gradients to other workers leave here
//   completed()  ◄─────────────────┘
//
// Every call under the lock returns outputs of the wave. The service acts on them in order:
// `transmit`, `commit`, `finished`, `aborted`, `violation`. After each call, it tries `claim`.
#pragma once

#include <weft/autograd/executor.hpp>
#include <weft/autograd/impl/gradient_map.hpp>
#include <weft/autograd/local_graph.hpp>
#include <weft/autograd/messages.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/wave.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft::autograd {

/// A `grad_message` and the tensors of its frame: the defined ones of `gradients`, in order.
struct packed_gradients {
  grad_message message;
  std::vector<at::Tensor> tensors;
};
inline packed_gradients pack(outgoing_gradients&& leaving) {
  packed_gradients packed;
  packed.message.message = leaving.to.message;
  packed.message.slots = static_cast<std::uint32_t>(leaving.gradients.size());
  packed.message.present.resize((leaving.gradients.size() + 7) / 8);
  for (std::uint32_t i = 0; i < packed.message.slots; ++i) {
    if (!leaving.gradients[i].defined()) continue;
    packed.message.set(i);
    packed.tensors.push_back(std::move(leaving.gradients[i]));
  }
  return packed;
}
/// Returns nothing if the number of tensors differs from the number that the message announces. The
/// caller has checked that the message has as many slots as its send node.
inline std::optional<std::vector<at::Tensor>> unpack(const grad_message& message,
                                                     std::vector<at::Tensor> tensors) {
  if (tensors.size() > message.slots || message.count() != tensors.size()) return std::nullopt;
  std::vector<at::Tensor> gradients(message.slots);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < message.slots; ++i) {
    if (message.has(i)) gradients[i] = std::move(tensors[next++]);
  }
  return gradients;
}

/// What a pass over a retained graph has found out on this worker, for later passes from the same
/// roots. It keeps no node alive.
struct kept_plan {
  wave plan;
  std::shared_ptr<local_graph> graph;
  std::vector<std::weak_ptr<torch::autograd::Node>> owners;  ///< of the graph's nodes
  std::vector<const torch::autograd::Node*> roots;           ///< at the initiator, ascending

  /// Adds those that are alive. False if some are not: then the plan is of no use any more.
  bool lock(std::vector<std::shared_ptr<torch::autograd::Node>>& all) const {
    for (const auto& weak : owners) {
      all.push_back(weak.lock());
      if (!all.back()) return false;
    }
    return !owners.empty();
  }
};

/// Destroy it without the lock, because it may run destructors of users' nodes.
class local_pass {
 public:
  /// `sends` is the context's table and must outlive the pass. At the initiator, nodes run in the
  /// thread-local state of the thread that makes the pass. Only the initiator uses the settings and
  /// the mode.
  local_pass(pass_id pass, worker_rank self, worker_rank world, const send_table& sends,
             pass_settings settings = {}, mode how = mode::smart)
      : wave_(pass, self, world, settings, how), graph_(std::make_shared<local_graph>(sends)) {
    if (wave_.is_initiator()) state_.emplace();
  }

  /// Repeats a plan. `owners` is what `lock` has returned.
  local_pass(pass_id pass, const kept_plan& kept, pass_settings settings,
             std::vector<std::shared_ptr<torch::autograd::Node>> owners)
      : wave_(pass, kept.plan, settings), graph_(kept.graph), owners_(std::move(owners)) {
    if (wave_.is_initiator()) state_.emplace();
  }
  /// The nodes at which passes from these roots begin, as in `kept_plan`.
  static std::vector<const torch::autograd::Node*> nodes_of(std::span<const root> roots);
  /// Whether `keep` may be called: the pass has run here, and another one may follow.
  bool can_be_kept() const {
    const bool ran = wave_.phase() == wave_phase::settled || wave_.phase() == wave_phase::ended;
    return ran && !wave_.opens() && wave_.settings().retention == graph_retention::retain;
  }
  /// Its plan. The graph's nodes are kept alive by this pass alone from then on.
  std::shared_ptr<const kept_plan> keep();

  /// See `wave`. Before `begin`.
  void walk_in_pieces_of(std::size_t nodes) { wave_.walk_in_pieces_of(nodes); }

  // ── under the lock ──
  outputs begin(std::vector<root> roots);
  /// At the initiator, before `begin`: gradients of these inputs only. `capture`: they are kept
  /// for `captured()`; else the inputs are leaves, and have them in `gradients()`.
  void ride(std::map<worker_rank, std::vector<std::uint64_t>> steps) {
    wave_.ride(std::move(steps));
  }
  void want(std::vector<torch::autograd::Edge> inputs, bool capture) {
    wanted_ = std::move(inputs);
    captures_ = capture;
  }
  /// `tensors` are those of a frame with a `grad_message`, else empty.
  outputs arrive(worker_rank from, const control_body& body, std::vector<at::Tensor> tensors = {});
  /// Called instead of `arrive` if the tensors of that frame are lost. If the pass awaits them from
  /// that worker, it aborts the pass with the text `why`.
  outputs gradients_lost(worker_rank from, const grad_message& what, std::string why);
  /// The answer to `walks`.
  outputs walk_on() { return absorb(wave_.step(wave_input::walk_on{}, *graph_)); }
  outputs lost(worker_rank peer) { return absorb(wave_.step(wave_input::lost{peer}, *graph_)); }
  outputs abort(abort_reason reason, std::string text) {
    return absorb(wave_.step(wave_input::failed{reason, std::move(text)}, *graph_));
  }
  /// True if there is work, and no thread does it. The caller must then call `evaluate` and
  /// `completed` once, in this order.
  bool claim();
  /// `behind`: words about the node that failed, if one did.
  outputs completed(const std::string& behind = {});
  /// The sent message from which gradients came to the node that failed in `evaluate`; nothing if
  /// none failed, or it is reached from the roots only. Before `completed`.
  std::optional<message_id> failed_behind() const;

  // ── on one thread, without the lock, between `claim` and `completed` ──
  /// `sink(worker_rank to, packed_gradients&&, bool more)` sends one frame. `more`: other nodes are
  /// ready and keep this thread busy afterwards.
  template <class Sink>
  void evaluate(Sink&& sink);

  // ── under the lock ──
  const wave& plan() const { return wave_; }
  bool over() const { return wave_.over(); }
  /// Its end has been heard here, and is taken when the sums are made.
  bool is_ending() const { return ending_; }
  void set_ending() { ending_ = true; }
  /// The gradients of this worker's leaves in this pass. Merge them into the context's when
  /// `commit` comes. Before that no other code may see them.
  gradient_map& gradients() { return executor_->gradients(); }
  /// One per input that was wanted; undefined if the roots do not depend on it. Once it finished.
  torch::autograd::variable_list captured() const;

 private:
  /// Acts on outputs that only this worker needs; returns the others.
  outputs absorb(outputs from_wave);
  void launch();

  struct seeding {
    node_index node = 0;
    std::vector<at::Tensor> gradients;
  };

  std::optional<at::ThreadLocalState> state_;
  wave wave_;
  std::shared_ptr<local_graph> graph_;
  std::vector<std::shared_ptr<torch::autograd::Node>> owners_;  // of a kept graph
  std::optional<local_executor> executor_;                      // from launch on
  std::vector<root> roots_;
  std::vector<const torch::autograd::Node*> root_nodes_;
  std::vector<torch::autograd::Edge> wanted_;
  bool captures_ = false;
  bool ending_ = false;
  std::map<message_id, std::vector<at::Tensor>> parked_;  // came before launch
  std::vector<seeding> seeds_;                            // may enter at the next `evaluate`

  enum class activity { resting, claimed } activity_ = activity::resting;
  std::vector<root> claimed_roots_;
  std::vector<seeding> claimed_seeds_;
  executor_status last_ = executor_status::waiting;
};

inline outputs local_pass::begin(std::vector<root> roots) {
  wave_input::begin in;
  const bool repeats = !owners_.empty();  // then the graph is kept, and has them
  for (const root& r : roots) {
    in.roots.push_back(repeats ? graph_->index_of(r.edge.function.get())
                               : graph_->index(r.edge.function));
  }
  root_nodes_ = nodes_of(roots);
  roots_ = std::move(roots);
  return absorb(wave_.step(in, *graph_));
}

inline outputs local_pass::arrive(worker_rank from, const control_body& body,
                                  std::vector<at::Tensor> tensors) {
  if (over()) return {};
  const auto* grad = std::get_if<grad_message>(&body);
  if (grad == nullptr) {
    if (!tensors.empty()) return {wave_output::violation{from, "tensors with a control message"}};
    return absorb(wave_.step(wave_input::arrived{from, body}, *graph_));
  }
  const auto point = graph_->send(grad->message);
  if (!point || point->peer != from || graph_->node(point->node).num_inputs() != grad->slots) {
    return {wave_output::violation{from, "gradients that do not fit the sent message"}};
  }
  auto gradients = unpack(*grad, std::move(tensors));
  if (!gradients) return {wave_output::violation{from, "gradients other than announced"}};
  outputs out = wave_.step(wave_input::arrived{from, body}, *graph_);
  const bool refused = !out.empty() && std::holds_alternative<wave_output::violation>(out.front());
  // A second copy of a message finds its place taken, or yields no start.
  if (!refused && !over()) parked_.try_emplace(grad->message, std::move(*gradients));
  out = absorb(std::move(out));
  if (wave_.phase() != wave_phase::idle && wave_.phase() != wave_phase::discover) parked_.clear();
  return out;
}

inline outputs local_pass::gradients_lost(worker_rank from, const grad_message& what,
                                          std::string why) {
  if (over()) return {};
  const auto point = graph_->send(what.message);
  if (!point || graph_->node(point->node).num_inputs() != what.slots) {
    return {wave_output::violation{from, "gradients that do not fit the sent message"}};
  }
  outputs out = wave_.step(wave_input::arrived{from, what}, *graph_);
  if (!out.empty() && std::holds_alternative<wave_output::violation>(out.front())) return out;
  return abort(abort_reason::failed, std::move(why));
}

inline outputs local_pass::absorb(outputs from_wave) {
  const auto mine = [&](const wave_output::any& out) {
    if (std::holds_alternative<wave_output::launch>(out)) {
      graph_->freeze();
      launch();
    } else if (std::holds_alternative<wave_output::complete>(out)) {
      if (activity_ == activity::resting) executor_->complete(wave_);  // else when it rests
    } else if (const auto* s = std::get_if<wave_output::start>(&out)) {
      if (auto parked = parked_.extract(s->message)) {
        seeds_.push_back({s->node, std::move(parked.mapped())});
      }
    } else {
      if (std::holds_alternative<wave_output::aborted>(out) && executor_) executor_->stop();
      return false;
    }
    return true;
  };
  std::erase_if(from_wave, mine);
  return from_wave;
}

inline std::vector<const torch::autograd::Node*> local_pass::nodes_of(std::span<const root> roots) {
  std::vector<const torch::autograd::Node*> nodes;
  for (const root& r : roots) nodes.push_back(r.edge.function.get());
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

inline std::shared_ptr<const kept_plan> local_pass::keep() {
  if (owners_.empty()) owners_ = graph_->release_owners();
  return std::make_shared<const kept_plan>(
      kept_plan{wave_, graph_, {owners_.begin(), owners_.end()}, root_nodes_});
}

inline void local_pass::launch() {
  executor_.emplace(*graph_, wave_, state_);
  if (wave_.settings().leaves != leaf_gradients::inputs) return;
  std::vector<wanted_input> wanted;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const auto node = graph_->find(wanted_[i].function.get());
    if (node) wanted.push_back({*node, wanted_[i].input_nr, i});
  }
  executor_->want(std::move(wanted), captures_);
}

inline torch::autograd::variable_list local_pass::captured() const {
  torch::autograd::variable_list all = executor_->captured();
  all.resize(wanted_.size());
  return all;
}

inline bool local_pass::claim() {
  const bool runs = wave_.phase() == wave_phase::discover || wave_.phase() == wave_phase::run;
  if (!executor_ || activity_ == activity::claimed || !runs) return false;
  if (roots_.empty() && seeds_.empty() && !executor_->has_work()) return false;
  activity_ = activity::claimed;
  claimed_roots_ = std::exchange(roots_, {});
  claimed_seeds_ = std::exchange(seeds_, {});
  return true;
}

template <class Sink>
void local_pass::evaluate(Sink&& sink) {
  for (root& r : claimed_roots_) executor_->seed(std::move(r));
  for (seeding& s : claimed_seeds_) executor_->seed(s.node, std::move(s.gradients));
  claimed_roots_.clear();
  claimed_seeds_.clear();
  last_ = executor_->evaluate_ready([&](outgoing_gradients&& leaving) {
    const worker_rank to = leaving.to.peer;
    packed_gradients packed = pack(std::move(leaving));
    packed.message.opens = wave_.opens();
    sink(to, std::move(packed), executor_->has_ready());
  });
}

inline outputs local_pass::completed(const std::string& behind) {
  activity_ = activity::resting;
  if (last_ == executor_status::failed) {
    const node_failure& why = executor_->failure();
    if (why.misused) return abort(abort_reason::misused, why.text);
    return abort(abort_reason::failed, why.node + ": " + why.text + behind);
  }
  if (wave_.phase() == wave_phase::run) executor_->complete(wave_);
  return last_ == executor_status::drained ? absorb(wave_.step(wave_input::drained{}, *graph_))
                                           : outputs();
}

inline std::optional<message_id> local_pass::failed_behind() const {
  if (last_ != executor_status::failed) return std::nullopt;
  const node_index failed = executor_->failure().index;
  std::vector<bool> seen(graph_->size());
  std::vector<node_index> stack;
  std::optional<message_id> found;
  wave_.each_needed([&](message_id id, node_index send) {
    stack.push_back(send);
    while (!found && !stack.empty()) {
      const node_index n = stack.back();
      stack.pop_back();
      if (seen[n]) continue;
      seen[n] = true;
      if (n == failed) found = id;
      for (const auto& edge : graph_->node(n).next_edges()) {
        if (edge.is_valid()) stack.push_back(graph_->index_of(edge.function.get()));
      }
    }
  });
  return found;
}

}  // namespace weft::autograd
