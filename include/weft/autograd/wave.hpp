// SPDX-License-Identifier: BSL-1.0
// Plans one backward pass on one worker: which nodes are needed, on which workers, and when the
// pass has ended everywhere. Pure: `step(input, graph) -> outputs`; no I/O, clock, thread,
// libtorch.
//
//   initiator                    participant                     meaning
//   begin ── need ──────────────► walk ── need ─► …              find what the roots reach
//   launch, as far as it is known │ launch, if all is known
//   ◄── need, where it leads back ┤
//   ◄───────────────────── ack ───┘ once nothing below it is open
//   complete ── go ─────────────► launch, if it waited           dependency counts are final
//   ◄─────────── grad between forward receivers and senders ───► start
//   ◄───────────────────── done ─┘ once everything needed ran
//   commit ── end ──────────────► commit                         gradients become visible
//   abort, from any worker: sent to the initiator and along the needs; all drop the pass. A worker
//   that has said done, and owes no ack, leaves it to the initiator, which may have succeeded.
//
// Discovery ends as Dijkstra and Scholten's diffusing computations do. It saves one round trip if a
// graph leads back to the worker that asked: that need has no ack of its own. The asker is engaged
// until it has the ack for its own need, and that ack says how many needs it must have seen.
//
// All nodes that the roots reach were recorded before the pass began. So once all send nodes of a
// worker are needed, its counts are final, and it runs. The initiator runs at once the nodes that
// no other send node leads to, unless there are none, or finding them costs more than the pass.
//
// FAST passes have no discovery: all send nodes count as needed. A worker joins with the first
// gradient that comes. Each done names who got gradients from there, so the initiator knows when
// all is done. A later pass from the same roots over a retained graph repeats the plan that all
// have kept, and begins in the same way.
//
// The protocol assumes no order of messages between two workers: a gradient may come before the
// need that announces it, and a message may arrive twice. Messages of a worker to itself are edges
// of the local walk: nothing is sent, and a chain of them costs no stack.
#pragma once

#include <weft/autograd/messages.hpp>
#include <weft/core/detail/sequence_set.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft::autograd {

/// A node of the local graph. Numbers count from zero, in the order in which the walk meets nodes.
using node_index = std::uint32_t;

/// A forward message, seen from one of its ends.
struct peer_message {
  worker_rank peer = 0;    ///< the worker at the other end
  message_id message = 0;  ///< 0: not recorded, outside any context
  context_id context = 0;
  friend auto operator<=>(const peer_message&, const peer_message&) = default;
};

/// A send node, found by its message.
struct send_point {
  node_index node = 0;
  worker_rank peer = 0;  ///< the forward receiver; only it may ask for this node
};

/// The local part of the autograd graph. It must not change between `begin` and `launch`.
template <class G>
concept graph = requires(G& g, node_index n, message_id m, void (*visit)(node_index),
                         void (*meet)(message_id, const send_point&)) {
  /// Calls `visit` for the target of each edge of `n`, in order, once per edge.
  { g.next(n, visit) };
  /// The message that `n` came with, if `n` is a receive node. Such a node has no edges.
  { g.receive(n) } -> std::same_as<std::optional<peer_message>>;
  /// The send node recorded here for `m`, or nothing.
  { g.send(m) } -> std::same_as<std::optional<send_point>>;
  /// How many messages to other workers than the given one are recorded here.
  { g.messages(worker_rank()) } -> std::same_as<std::size_t>;
  /// Calls `meet` for all send nodes recorded here.
  { g.each_send(meet) };
  /// From now on `send` finds only nodes that it has found before.
  { g.freeze() };
};

/// The inputs of a wave.
namespace wave_input {

/// Starts the pass: once, only at its initiator. Roots may repeat.
struct begin {
  std::vector<node_index> roots;
};
struct arrived {
  worker_rank from = 0;
  control_body body;
};
/// Every node that `launch` counted has run here.
struct drained {};
/// A node failed here, or the caller cancelled.
struct failed {
  abort_reason reason = abort_reason::failed;
  std::string text;
};
/// The worker is gone: none of its messages arrives after this. This is also the answer to a
/// `transmit` to a worker that is already gone.
struct lost {
  worker_rank peer = 0;
};
/// The next piece of a walk.
struct walk_on {};
using any = std::variant<begin, arrived, drained, failed, lost, walk_on>;

}  // namespace wave_input

/// The outputs of a wave. Its owner acts on them in order.
namespace wave_output {

struct transmit {
  worker_rank to = 0;
  control message;
};
/// `dependencies()` is final, except for nodes that `may_grow`. Give the roots (at the initiator)
/// their gradients, and run the other nodes.
struct launch {};
/// After a `launch` that left nodes out: `dependencies()` is final.
struct complete {};
/// The gradients of this message may enter the graph at this node.
struct start {
  message_id message = 0;
  node_index node = 0;
};
/// The pass succeeded: add its gradients to the context's, then run these steps.
struct commit {
  std::vector<std::uint64_t> steps{};
};
/// At the initiator, after `commit`: the caller's wait ends.
struct finished {
  std::vector<worker_rank> participants;  ///< other workers, ascending
};
/// The pass failed: stop running it and drop its gradients.
struct aborted {
  worker_rank origin = 0;
  abort_reason reason = abort_reason::failed;
  std::string text;
};
/// The peer sent a message that does not fit this pass; it changed nothing. If the peer is to
/// blame, close its link. Else tell the peer that its part of the pass is refused.
struct violation {
  worker_rank from = 0;
  std::string text;
  blame on = blame::sender;
};
/// The walk over the graph is not over: step `walk_on`, on a thread that may compute.
struct walks {};
using any =
    std::variant<transmit, launch, complete, start, commit, finished, aborted, violation, walks>;

}  // namespace wave_output

using outputs = std::vector<wave_output::any>;

enum class wave_phase : std::uint8_t {
  idle,      ///< no need has come yet
  discover,  ///< finding the nodes that are needed here; some nodes may run
  run,       ///< all nodes that are needed here are known; they run
  settled,   ///< all needed nodes have run here; other workers may still run
  ended,
  aborted
};

/// One pass on one worker. Not thread-safe: step it under the context's lock.
class wave {
 public:
  /// Peers may name ranks below `world`. The initiator chooses `settings` and the mode; the other
  /// workers learn them from the first message.
  wave(pass_id pass, worker_rank self, worker_rank world, pass_settings settings = {},
       mode how = mode::smart)
      : pass_(pass), self_(self), world_(world), settings_(settings) {
    if (how == mode::fast) opens_ = pass_opening{settings};
  }

  /// A pass that repeats the plan of `before`, whose part here has run. Its graph has not changed.
  wave(pass_id pass, const wave& before, pass_settings settings)
      : pass_(pass),
        self_(before.self_),
        world_(before.world_),
        settings_(settings),
        opens_(pass_opening{settings, before.plan_number()}),
        visited_(before.visited_),
        dependencies_(before.dependencies_),
        needed_nodes_(before.needed_nodes_),
        needed_(before.needed_),
        discovered_(before.discovered_),
        participants_(before.participants_) {
    for (auto& [id, sent] : needed_) sent.arrived = false;
  }

  /// After `launch`, `g` is only read.
  template <graph G>
  outputs step(const wave_input::any& in, G& g);

  /// At the initiator: steps that run at their owners when the pass has succeeded.
  void ride(std::map<worker_rank, std::vector<std::uint64_t>> steps) { steps_ = std::move(steps); }
  const std::map<worker_rank, std::vector<std::uint64_t>>& steps() const { return steps_; }
  /// A piece of a walk is so many nodes.
  void walk_in_pieces_of(std::size_t nodes) { piece_ = nodes; }

  const pass_id& pass() const { return pass_; }
  worker_rank self() const { return self_; }
  wave_phase phase() const { return phase_; }
  const pass_settings& settings() const { return settings_; }
  /// Why gradients of a pass in this context cannot flow into a message that came here; empty: they
  /// can. FAST passes meet such messages that no gradient reaches, so the executor asks.
  static std::string misuse_of(const peer_message& m, context_id context);
  /// The number of the pass that made its plan.
  std::uint32_t plan_number() const {
    return opens_ && opens_->plan != 0 ? opens_->plan : pass_.number;
  }
  /// At the initiator, once discovery is over: the others, ascending.
  const std::set<worker_rank>& participants() const { return participants_; }
  /// What gradients of a pass without discovery bring along.
  const std::optional<pass_opening>& opens() const { return opens_; }
  /// In a pass without discovery: calls `visit` for each message whose gradients have not come.
  template <class F>
  void each_missing(F&& visit) const {
    if (!opens_) return;
    for (const auto& [id, sent] : needed_) {
      if (!sent.arrived) visit(peer_message{sent.peer, id, pass_.context});
    }
  }
  /// Calls `visit` for each message to another worker that is needed, and its send node.
  template <class F>
  void each_needed(F&& visit) const {
    for (const auto& [id, sent] : needed_) visit(id, sent.node);
  }
  /// Of the workers that are known to take part: who is not done. At the initiator.
  std::vector<worker_rank> not_done() const {
    const auto& all = discovered_ ? participants_ : leads_to_;
    std::vector<worker_rank> out;
    std::set_difference(all.begin(), all.end(), done_.begin(), done_.end(),
                        std::back_inserter(out));
    return out;
  }
  bool is_initiator() const { return pass_.initiator == self_; }
  /// The pass needs no further input and can be forgotten (see `ended_passes`).
  bool over() const { return phase_ == wave_phase::ended || phase_ == wave_phase::aborted; }
  /// It has told the initiator all that it was asked for. That may have been the last missing part,
  /// so only the initiator decides now.
  bool promised() const {
    return phase_ == wave_phase::settled && !is_initiator() && deficit_ == 0 && !parent_;
  }
  /// Per node that the walk met: the number of edges into it from needed nodes. All of these nodes
  /// are needed.
  std::span<const std::uint32_t> dependencies() const { return dependencies_; }
  /// The number of nodes that the walk met. So many nodes run here before `drained`.
  std::size_t needed_nodes() const { return needed_nodes_; }
  /// Between `launch` and `complete`: whether `dependencies()` of this node may still grow, if it
  /// is needed at all.
  bool may_grow(node_index n) const { return n < open_.size() && open_[n]; }

 private:
  struct needed_send {
    node_index node = 0;
    worker_rank peer = 0;
    bool arrived = false;
  };
  struct need_log {  // needs sent to one peer
    std::uint32_t next = 0;
    std::set<std::uint32_t> open;
    std::map<std::uint32_t, ack_message> early;  // acks that overtook the needs that they count
  };
  using needs_seen = weft::detail::sequence_set<std::uint32_t>;  // by sequence
  struct engagement {
    worker_rank from = 0;
    std::uint32_t sequence = 0;
  };
  /// A walk over many nodes is done in pieces, between which other threads get the context's lock.
  /// What comes meanwhile waits for its end.
  enum class walk_cause : std::uint8_t { begin, need, everything };
  struct walk_state {
    walk_cause cause = walk_cause::begin;
    std::vector<node_index> stack;
    std::map<worker_rank, std::vector<message_id>> asks{};
    std::vector<node_index> roots{};  // of begin
    engagement need{};                // these three of a need
    need_reply reply = need_reply::own;
    bool engages = false;
  };

  template <graph G>
  void take(const wave_input::begin& in, G& g, outputs& out);
  template <graph G>
  void take(const wave_input::arrived& in, G& g, outputs& out);
  template <graph G>
  void take(const wave_input::drained&, G&, outputs& out);
  template <graph G>
  void take(const wave_input::failed& in, G&, outputs& out) {
    if (promised() && in.reason != abort_reason::refused) return;
    abort({self_, in.reason, in.text}, self_, out);
  }
  template <graph G>
  void take(const wave_input::lost& in, G&, outputs& out);
  template <graph G>
  void take(const wave_input::walk_on&, G& g, outputs& out) {
    if (walk_) walk_piece(g, out);
  }

  template <graph G>
  void on(worker_rank from, const need_message& m, G& g, outputs& out);
  template <graph G>
  void on(worker_rank from, const grad_message& m, G&, outputs& out);
  template <graph G>
  void on(worker_rank from, const ack_message& m, G&, outputs& out);
  void take_acks(worker_rank from, need_log& log);
  template <graph G>
  void on(worker_rank from, const go_message&, G&, outputs& out);
  template <graph G>
  void on(worker_rank from, const done_message&, G&, outputs& out);
  template <graph G>
  void on(worker_rank from, const abort_message& m, G&, outputs& out);
  template <graph G>
  void on(worker_rank from, const end_message& m, G&, outputs& out);
  /// These two change nothing in a pass.
  template <graph G>
  void on(worker_rank, const which_message&, G&, outputs&) {}
  template <graph G>
  void on(worker_rank, const waits_message&, G&, outputs&) {}

  /// Marks everything reachable from the walk's stack, asks the peers it leads to, and goes on as
  /// its cause wants.
  template <graph G>
  void walk(G& g, walk_state from, outputs& out) {
    walk_.emplace(std::move(from));
    walk_piece(g, out);
  }
  template <graph G>
  void walk_piece(G& g, outputs& out);
  template <graph G>
  void walked(G& g, const walk_state& done, outputs& out);
  bool visit(node_index n);
  /// Begins a FAST pass here: from the roots, and from all sent messages.
  template <graph G>
  void begin_everywhere(G& g, std::span<const node_index> roots, outputs& out);
  /// Calls `visit` for what `n` leads to here. Returns the message that `n` came with if what it
  /// leads to is not here.
  template <graph G, class F>
  std::optional<peer_message> follow(G& g, node_index n, F&& visit) const;
  /// Runs if all that can be needed here is.
  template <graph G>
  void maybe_run(G& g, outputs& out);
  /// Marks the nodes that needs to come may lead to, and runs the others if a root is among them.
  template <graph G>
  void run_early(G& g, std::span<const node_index> roots, outputs& out);
  void maybe_settle(outputs& out);
  void send_ack(engagement to, std::vector<worker_rank> workers, std::vector<worker_rank> waiting,
                outputs& out) const;
  void enter_run_phase(outputs& out);
  void maybe_finish(outputs& out);
  /// At the initiator: these workers take part; nobody else does. False: one of them is lost.
  bool discover(std::set<worker_rank> all, outputs& out);
  void abort(abort_message why, worker_rank heard_from, outputs& out);
  static abort_message loss_of(worker_rank gone) {
    return {gone, abort_reason::lost, "worker " + std::to_string(gone) + " was lost"};
  }
  void give_up_for(worker_rank gone, outputs& out) { abort(loss_of(gone), self_, out); }

  void send(worker_rank to, control_body body, outputs& out) const {
    out.emplace_back(wave_output::transmit{to, control{pass_, std::move(body)}});
  }
  static void refuse(worker_rank from, std::string text, outputs& out, blame on = blame::sender) {
    out.emplace_back(wave_output::violation{from, std::move(text), on});
  }

  pass_id pass_;
  worker_rank self_;
  worker_rank world_;
  pass_settings settings_;
  std::optional<pass_opening> opens_;
  wave_phase phase_ = wave_phase::idle;

  std::size_t piece_ = 1024;
  std::optional<walk_state> walk_;         // under way
  std::vector<wave_input::any> deferred_;  // what came meanwhile
  std::vector<bool> visited_;
  std::vector<bool> open_;  // see may_grow; empty unless run_early has launched
  std::vector<std::uint32_t> dependencies_;
  std::size_t needed_nodes_ = 0;
  std::map<message_id, needed_send> needed_;
  std::map<message_id, worker_rank> premature_;  // gradients that came before their need
  std::vector<message_id> early_;                // gradients that came before run, in order

  std::map<worker_rank, need_log> asked_;       // needs that left
  std::map<worker_rank, needs_seen> asked_by_;  // needs that came
  std::size_t deficit_ = 0;                     // needs not yet acknowledged
  std::optional<engagement> parent_;            // the need to acknowledge last
  std::set<worker_rank> below_;                 // who joined below this worker
  std::set<worker_rank> waiting_;               // of those, who waits for go
  /// Without discovery: who gets gradients from here; at the initiator, from anywhere.
  std::set<worker_rank> leads_to_;

  // The initiator's:
  std::map<worker_rank, std::vector<std::uint64_t>> steps_;
  bool discovered_ = false;
  std::set<worker_rank> lost_;          // until discovered: who of them took part is not known yet
  std::set<worker_rank> participants_;  // without itself; once discovered
  std::set<worker_rank> done_;
};

}  // namespace weft::autograd

#include <weft/autograd/impl/wave.hpp>
#include <weft/autograd/impl/wave_walk.hpp>
