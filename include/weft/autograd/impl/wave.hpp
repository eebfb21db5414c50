// SPDX-License-Identifier: BSL-1.0
#pragma once

// Bodies of `wave`.

#include <weft/autograd/wave.hpp>

namespace weft::autograd {

template <graph G>
outputs wave::step(const wave_input::any& in, G& g) {
  outputs out;
  const bool waits = walk_ && !std::holds_alternative<wave_input::walk_on>(in) &&
                     !std::holds_alternative<wave_input::failed>(in);
  if (waits) {
    deferred_.push_back(in);
    return out;
  }
  if (!over()) std::visit([&](const auto& i) { take(i, g, out); }, in);
  while (!walk_ && !over() && !deferred_.empty()) {
    const wave_input::any next = std::move(deferred_.front());
    deferred_.erase(deferred_.begin());
    std::visit([&](const auto& i) { take(i, g, out); }, next);
  }
  return out;
}

template <graph G>
void wave::take(const wave_input::begin& in, G& g, outputs& out) {
  if (phase_ != wave_phase::idle || !is_initiator()) return;
  if (opens_ && opens_->plan != 0) return enter_run_phase(out);
  if (opens_) return begin_everywhere(g, in.roots, out);
  phase_ = wave_phase::discover;
  std::vector<node_index> stack;
  for (node_index n : in.roots) {
    if (visit(n)) stack.push_back(n);
  }
  walk(g, {.cause = walk_cause::begin, .stack = std::move(stack), .roots = in.roots}, out);
}

template <graph G>
void wave::take(const wave_input::arrived& in, G& g, outputs& out) {
  if (in.from == self_ || in.from >= world_) {
    return refuse(in.from, "a message of a pass from an impossible worker", out);
  }
  std::visit([&](const auto& m) { on(in.from, m, g, out); }, in.body);
}

template <graph G>
void wave::take(const wave_input::drained&, G&, outputs& out) {
  if (phase_ != wave_phase::run) return;
  phase_ = wave_phase::settled;
  if (is_initiator()) return maybe_finish(out);
  send(pass_.initiator, done_message{{leads_to_.begin(), leads_to_.end()}}, out);
}

template <graph G>
void wave::take(const wave_input::lost& in, G&, outputs& out) {
  // Having settled and sent its acks, a participant waits for the initiator alone; that one watches
  // the others.
  const bool open = phase_ != wave_phase::settled || deficit_ != 0;
  const bool early = std::any_of(premature_.begin(), premature_.end(),
                                 [&](const auto& p) { return p.second == in.peer; });
  const bool missing = opens_ && std::any_of(needed_.begin(), needed_.end(), [&](const auto& n) {
                         return n.second.peer == in.peer && !n.second.arrived;
                       });
  const bool waits =
      in.peer == pass_.initiator ||
      (is_initiator() && (participants_.contains(in.peer) || leads_to_.contains(in.peer))) ||
      (open && (early || missing || asked_.contains(in.peer) || asked_by_.contains(in.peer) ||
                leads_to_.contains(in.peer)));
  if (waits) return give_up_for(in.peer, out);
  // What it got from here without discovery may not have come, and then nobody waits for it but the
  // initiator, which may reach it.
  if (opens_ && !open && leads_to_.contains(in.peer)) {
    send(pass_.initiator, loss_of(in.peer), out);
  }
  // It may have been drawn in by others, and have answered them, so that none of them waits for it:
  // their acks, still on their way, will name it.
  if (is_initiator() && !discovered_) lost_.insert(in.peer);
}

template <graph G>
void wave::on(worker_rank from, const need_message& m, G& g, outputs& out) {
  if (const auto known = asked_by_.find(from);
      known != asked_by_.end() && known->second.contains(m.sequence)) {
    return;  // came twice
  }
  if (phase_ != wave_phase::idle && phase_ != wave_phase::discover) {
    return refuse(from, "a need after discovery was over", out, blame::somebody);
  }
  if (is_initiator() && phase_ == wave_phase::idle) {
    return refuse(from, "a need for a pass that has not begun", out, blame::somebody);
  }
  if (m.messages.empty()) return refuse(from, "a need for nothing", out);
  const auto log = asked_.find(from);
  if (m.reply == need_reply::none && (log == asked_.end() || log->second.open.empty())) {
    return refuse(from, "a need without reply, but this worker waits for no ack", out);
  }
  if (phase_ != wave_phase::idle && m.settings != settings_) {
    return refuse(from, "two needs of one pass differ in settings", out, blame::somebody);
  }

  std::vector<std::pair<message_id, node_index>> fresh;
  std::set<message_id> within;
  for (message_id id : m.messages) {
    const auto point = g.send(id);
    if (!point || point->peer != from) {
      settings_ = m.settings;
      asked_by_[from].insert(m.sequence);
      return abort({self_, abort_reason::refused,
                    "worker " + std::to_string(self_) + " has recorded no message " +
                        std::to_string(id) + " to worker " + std::to_string(from)},
                   self_, out);
    }
    if (needed_.contains(id) || !within.insert(id).second) {
      return refuse(from, "a message needed twice", out);
    }
    fresh.emplace_back(id, point->node);
  }

  settings_ = m.settings;
  asked_by_[from].insert(m.sequence);
  const bool engages = !is_initiator() && !parent_;
  if (engages) parent_ = engagement{from, m.sequence};
  phase_ = wave_phase::discover;
  std::vector<node_index> stack;
  for (const auto& [id, node] : fresh) {
    const bool came = premature_.erase(id) != 0;
    needed_.emplace(id, needed_send{.node = node, .peer = from, .arrived = came});
    if (came) early_.push_back(id);
    if (visit(node)) stack.push_back(node);
  }
  walk(g,
       {.cause = walk_cause::need,
        .stack = std::move(stack),
        .need = {from, m.sequence},
        .reply = m.reply,
        .engages = engages},
       out);
}

template <graph G>
void wave::on(worker_rank from, const ack_message& m, G&, outputs& out) {
  const auto log = asked_.find(from);
  if (log == asked_.end() || m.sequence >= log->second.next) {
    return refuse(from, "an ack without its need", out);
  }
  // Kept until its needs have come, if they do: a list of more than there are names some twice.
  if (m.workers.size() > world_ || m.waiting.size() > world_) {
    return refuse(from, "an ack that names more workers than there are", out);
  }
  const auto impossible = [&](worker_rank w) { return w >= world_; };
  if (std::any_of(m.workers.begin(), m.workers.end(), impossible) ||
      std::any_of(m.waiting.begin(), m.waiting.end(), impossible)) {
    return refuse(from, "an ack that names an impossible worker", out);
  }
  if (!log->second.open.contains(m.sequence)) return;  // came twice
  log->second.early.try_emplace(m.sequence, m);
  take_acks(from, log->second);
  maybe_settle(out);
}

/// Counts the acks whose needs have all come.
inline void wave::take_acks(worker_rank from, need_log& log) {
  const auto came = asked_by_.find(from);
  const std::uint32_t needs = came == asked_by_.end() ? 0 : came->second.next();
  for (auto ack = log.early.begin(); ack != log.early.end();) {
    if (ack->second.needs > needs) {
      ++ack;
      continue;
    }
    log.open.erase(ack->first);
    --deficit_;
    below_.insert(ack->second.workers.begin(), ack->second.workers.end());
    waiting_.insert(ack->second.waiting.begin(), ack->second.waiting.end());
    ack = log.early.erase(ack);
  }
}

template <graph G>
void wave::on(worker_rank from, const go_message&, G&, outputs& out) {
  if (from != pass_.initiator) return refuse(from, "a go, but not from the initiator", out);
  if (phase_ == wave_phase::run || phase_ == wave_phase::settled) return;  // came twice
  if (phase_ != wave_phase::discover || parent_ || deficit_ != 0) {
    return refuse(from, "a go before discovery was over", out, blame::somebody);
  }
  enter_run_phase(out);
}

template <graph G>
void wave::on(worker_rank from, const grad_message& m, G& g, outputs& out) {
  if (m.opens && phase_ == wave_phase::idle && !is_initiator()) {
    const auto point = g.send(m.message);
    if (!point || point->peer != from) {
      return refuse(from, "a gradient from a worker that did not get the message", out);
    }
    if (!premature_.empty()) {
      return refuse(from, "a pass with and without discovery", out, blame::somebody);
    }
    const bool repeats = opens_.has_value();
    if (repeats ? m.opens != opens_ : m.opens->plan != 0) {
      return refuse(from, "a gradient that opens another pass", out, blame::somebody);
    }
    settings_ = m.opens->settings;
    opens_ = m.opens;
    repeats ? enter_run_phase(out) : begin_everywhere(g, {}, out);
    if (over()) return;
  }
  if (m.opens != opens_) {
    return refuse(from, "a gradient that opens another pass", out, blame::somebody);
  }
  const auto needed = needed_.find(m.message);
  if (needed == needed_.end()) {
    const auto point = g.send(m.message);
    if (!point || point->peer != from) {
      return refuse(from, "a gradient from a worker that did not get the message", out);
    }
    const bool possible =
        phase_ == wave_phase::discover || (phase_ == wave_phase::idle && !is_initiator());
    if (!possible) return refuse(from, "a gradient that was not announced", out, blame::somebody);
    premature_.emplace(m.message, from);
    return;
  }
  if (needed->second.peer != from) {
    return refuse(from, "a gradient that was not announced", out);
  }
  if (needed->second.arrived) return;  // came twice
  needed->second.arrived = true;
  if (phase_ == wave_phase::discover) {
    early_.push_back(m.message);
  } else {
    out.emplace_back(wave_output::start{m.message, needed->second.node});
  }
}

template <graph G>
void wave::on(worker_rank from, const done_message& m, G&, outputs& out) {
  const bool possible =
      discovered_ ? participants_.contains(from) : is_initiator() && phase_ != wave_phase::idle;
  if (!possible) {
    return refuse(from, "a done from a worker that takes no part", out,
                  is_initiator() ? blame::somebody : blame::sender);
  }
  const auto impossible = [&](worker_rank w) { return w >= world_; };
  if (m.workers.size() > world_ || std::any_of(m.workers.begin(), m.workers.end(), impossible)) {
    return refuse(from, "a done that names an impossible worker", out);
  }
  if (!done_.insert(from).second) return;  // came twice
  if (opens_) leads_to_.insert(m.workers.begin(), m.workers.end());
  leads_to_.erase(self_);
  maybe_finish(out);
}

template <graph G>
void wave::on(worker_rank from, const abort_message& m, G&, outputs& out) {
  if (m.origin >= world_) return refuse(from, "an abort that names an impossible worker", out);
  if (promised() && from != pass_.initiator) return;
  abort(m, from, out);
}

template <graph G>
void wave::on(worker_rank from, const end_message& m, G&, outputs& out) {
  if (from != pass_.initiator) return refuse(from, "an end, but not from the initiator", out);
  if (phase_ != wave_phase::settled) return refuse(from, "an end before the pass was done", out);
  out.emplace_back(wave_output::commit{m.steps});
  phase_ = wave_phase::ended;
}

inline void wave::maybe_settle(outputs& out) {
  if (deficit_ != 0) return;
  if (is_initiator()) {
    if (discovered_ || phase_ == wave_phase::idle) return;
    if (!discover(std::exchange(below_, {}), out)) return;
    waiting_.erase(self_);
    for (worker_rank w : waiting_) send(w, go_message{}, out);
    if (phase_ == wave_phase::discover) enter_run_phase(out);
    return maybe_finish(out);
  }
  if (!parent_) return;
  below_.insert(self_);
  if (phase_ == wave_phase::discover) waiting_.insert(self_);
  send_ack(*parent_, {below_.begin(), below_.end()}, {waiting_.begin(), waiting_.end()}, out);
  below_.clear();
  waiting_.clear();
  parent_.reset();  // a later need engages this worker again
}

inline void wave::send_ack(engagement to, std::vector<worker_rank> workers,
                           std::vector<worker_rank> waiting, outputs& out) const {
  const auto log = asked_.find(to.from);
  const std::uint32_t needs = log == asked_.end() ? 0 : log->second.next;
  send(to.from, ack_message{to.sequence, std::move(workers), needs, std::move(waiting)}, out);
}

inline void wave::enter_run_phase(outputs& out) {
  phase_ = wave_phase::run;
  if (open_.empty()) {
    out.emplace_back(wave_output::launch{});
  } else {
    open_.clear();
    out.emplace_back(wave_output::complete{});
  }
  for (message_id m : std::exchange(early_, {})) {
    out.emplace_back(wave_output::start{m, needed_.at(m).node});
  }
}

inline bool wave::discover(std::set<worker_rank> all, outputs& out) {
  discovered_ = true;
  participants_ = std::move(all);
  participants_.erase(self_);
  for (worker_rank w : std::exchange(lost_, {})) {
    if (participants_.contains(w)) return give_up_for(w, out), false;
  }
  std::erase_if(done_, [&](worker_rank w) {
    if (participants_.contains(w)) return false;
    refuse(w, "a done from a worker that takes no part", out, blame::somebody);
    return true;
  });
  return true;
}

inline void wave::maybe_finish(outputs& out) {
  if (opens_ && phase_ == wave_phase::settled && !discovered_) {
    if (!not_done().empty() || !discover(leads_to_, out)) return;
  }
  if (phase_ != wave_phase::settled || !discovered_ || done_.size() != participants_.size()) return;
  phase_ = wave_phase::ended;
  const auto of = [&](worker_rank w) {
    const auto found = steps_.find(w);
    return found == steps_.end() ? std::vector<std::uint64_t>() : found->second;
  };
  for (worker_rank w : participants_) send(w, end_message{of(w)}, out);
  out.emplace_back(wave_output::commit{of(self_)});
  out.emplace_back(wave_output::finished{{participants_.begin(), participants_.end()}});
}

inline void wave::abort(abort_message why, worker_rank heard_from, outputs& out) {
  // Whoever is in the pass was asked by somebody in it, so telling those whom one has asked
  // reaches everybody who has not said done; the initiator is told at once, and tells those it
  // knows of. Whose done comes later is told then.
  std::set<worker_rank> tell = participants_;
  tell.insert(done_.begin(), done_.end());
  tell.insert(leads_to_.begin(), leads_to_.end());
  tell.insert(pass_.initiator);
  for (const auto& asked : asked_) tell.insert(asked.first);
  for (const auto& asking : asked_by_) tell.insert(asking.first);
  tell.erase(self_);
  // Who refuses a part of a pass may itself be in it, and goes on until it hears this; so does who
  // has said done.
  if (why.reason != abort_reason::refused && !done_.contains(heard_from)) tell.erase(heard_from);
  for (worker_rank w : tell) send(w, why, out);
  phase_ = wave_phase::aborted;
  walk_.reset();
  deferred_.clear();
  out.emplace_back(wave_output::aborted{why.origin, why.reason, std::move(why.text)});
}

}  // namespace weft::autograd
