// SPDX-License-Identifier: BSL-1.0
#pragma once

// Workers in one process whose backward passes talk through queues, for tests of autograd without
// rpc. All that they say to each other, tensors too, is packed into frames and unpacked as links
// do: between some pairs as inside one process (tensors arrive over the sender's storage), between
// the others as over a socket. Order of delivery and of work follows a seed.

#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/frame.hpp>
#include <weft/autograd/pass.hpp>
#include <weft/engine/services/autograd_section.hpp>
#include <weft/wire/detail/tensor_table.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/tensor.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <wire/sent_over.hpp>

namespace weft::autograd::test {

/// Numbers that are the same everywhere for a seed.
class dice {
 public:
  explicit dice(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

class workers {
 public:
  workers(worker_rank world, std::uint32_t seed) : random_(seed), at_(world) {
    if (seed % 2 == 1) piece_ = 1 + seed / 2 % 3;
  }

  /// What an rpc does with its tensors: the receiver's end in a recv node.
  std::vector<at::Tensor> transfer(worker_rank from, const std::vector<at::Tensor>& tensors,
                                   worker_rank to) {
    const message_id id = ++last_message_;
    message m;
    weft::encode(m.payload(), tensors);
    const auto sent = record_send(m.record().get<tensor_table>().tensors(), {to, id, context});
    if (sent) at_[from].sends.add(sent);
    incoming_message in(carried(from, to, std::move(m).finish({})));
    if (!in.check()) throw std::logic_error("an unreadable message");
    in.record().get<tensor_table>().on_received = [&](std::span<at::Tensor> received,
                                                      const std::vector<bool>& computed) {
      receive(received, computed, {from, sent ? id : 0, context});
    };
    reader r = in.payload();
    auto received = weft::decode<std::vector<at::Tensor>>(r);
    r.finish();
    return received;
  }

  /// What a pass is asked for beside its roots, and what became of it.
  struct request {
    pass_settings settings{};
    mode how = mode::smart;
    std::vector<at::Tensor> given{};
    std::vector<at::Tensor> inputs{};  ///< leaves == inputs: those
    bool capture = false;
  };
  struct outcome {
    std::optional<wave_output::aborted> failure;
    std::vector<at::Tensor> captured;
    std::size_t gradients = 0;             ///< messages with gradients
    std::set<worker_rank> participants{};  ///< who got one, and the initiator
    bool waits = false;                    ///< for gradients that never come; it was given up then
  };
  outcome run(worker_rank initiator, std::span<const at::Tensor> roots, const request& what) {
    const pass_id pass{context, initiator, ++last_pass_};
    const auto from = roots_of(roots, what.given);
    const auto nodes = local_pass::nodes_of(from);
    const std::shared_ptr<const kept_plan> kept = [&]() -> std::shared_ptr<const kept_plan> {
      for (const auto& [id, plan] : at_[initiator].plans) {
        if (id.initiator != initiator || plan->roots != nodes || what.how != mode::smart) continue;
        if (std::vector<std::shared_ptr<torch::autograd::Node>> all; plan->lock(all)) return plan;
      }
      return nullptr;
    }();
    if (kept) ++repeated;
    auto& p = kept ? repeat(initiator, pass, *kept, what.settings)
                   : make(initiator, pass, what.settings, what.how);
    if (what.settings.leaves == leaf_gradients::inputs) {
      p.want(inputs_of(what.inputs, what.capture), what.capture);
    }
    outcome out;
    const std::size_t before = gradients_sent_;
    got_gradients_.clear();
    act(initiator, pass, p.begin(from));
    run_all();
    if (!results_.contains(pass)) {
      std::size_t missing = 0;
      for (const auto& w : at_) {
        for (const auto& [id, part] : w.passes)
          part->plan().each_missing([&](auto&&) { ++missing; });
      }
      if (missing == 0) throw std::logic_error("the pass hangs");
      out.waits = true;
      act(initiator, pass, at_[initiator].passes.at(pass)->abort(abort_reason::cancelled, "waits"));
      run_all();
    }
    finish();
    out.failure = results_.at(pass);
    out.captured = captured_;
    out.gradients = gradients_sent_ - before;
    out.participants = std::exchange(got_gradients_, {});
    out.participants.insert(initiator);
    return out;
  }
  /// Messages to other workers that these have recorded.
  std::size_t sends(const std::set<worker_rank>& of) const {
    std::size_t n = 0;
    for (const worker_rank w : of) n += at_[w].sends.size_without(w);
    return n;
  }

  /// A pass begun by `initiator`; returns the error, if it had one.
  std::optional<wave_output::aborted> backward(worker_rank initiator,
                                               std::span<const at::Tensor> roots,
                                               graph_retention retention = graph_retention::release,
                                               std::span<const at::Tensor> given = {}) {
    start(initiator, roots, retention, given);
    finish();
    const pass_id pass{context, initiator, last_pass_};
    if (!results_.contains(pass)) throw std::logic_error("the pass hangs");
    return results_.at(pass);
  }
  /// As `backward`, without waiting: `finish` runs all passes that were started.
  pass_id start(worker_rank initiator, std::span<const at::Tensor> roots, graph_retention retention,
                std::span<const at::Tensor> given = {}) {
    const pass_id pass{context, initiator, ++last_pass_};
    auto& p = make(initiator, pass, retention);
    act(initiator, pass, p.begin(roots_of(roots, given)));
    return pass;
  }
  void run_all() {
    // bounded: the wave ends after finitely many messages; a hang shows in the watchdog
    while (advance()) {
    }
  }
  void finish() {
    run_all();
    for (const auto& w : at_) {
      if (!w.passes.empty()) throw std::logic_error("a pass was kept");
    }
  }
  const std::optional<wave_output::aborted>& result(const pass_id& pass) const {
    return results_.at(pass);
  }

  std::size_t repeated = 0;  // passes that needed no discovery

  const gradient_map& gradients(worker_rank w) const { return at_[w].gradients; }
  std::size_t messages_to(worker_rank w) const { return at_[w].messages; }

 private:
  static constexpr context_id context = 42;
  struct one_worker {
    send_table sends;
    gradient_map gradients;
    ended_passes ended;
    std::map<pass_id, std::unique_ptr<local_pass>> passes;
    std::map<pass_id, std::shared_ptr<const kept_plan>> plans;
    std::size_t messages = 0;
  };

  local_pass& repeat(worker_rank w, const pass_id& pass, const kept_plan& kept,
                     pass_settings settings) {
    std::vector<std::shared_ptr<torch::autograd::Node>> owners;
    if (!kept.lock(owners)) throw std::logic_error("a plan whose graph is gone");
    return *(at_[w].passes[pass] =
                 std::make_unique<local_pass>(pass, kept, settings, std::move(owners)));
  }
  local_pass& make(worker_rank w, const pass_id& pass, pass_settings settings,
                   mode how = mode::smart) {
    auto& made = at_[w].passes[pass] = std::make_unique<local_pass>(
        pass, w, static_cast<worker_rank>(at_.size()), at_[w].sends, settings, how);
    made->walk_in_pieces_of(piece_);
    return *made;
  }
  /// As the receiver gets it.
  frame carried(worker_rank from, worker_rank to, frame f) {
    const bool one_process = (from + to) % 2 == 0;
    if (one_process) return f;
    auto copy = weft_test::copy_of(f);
    if (!copy) throw std::logic_error("a frame that cannot travel");
    return std::move(*copy);
  }
  void send(worker_rank from, worker_rank to, const control& message,
            const std::vector<at::Tensor>& tensors) {
    ++at_[to].messages;
    if (std::holds_alternative<grad_message>(message.body)) {
      ++gradients_sent_;
      got_gradients_.insert(to);
    }
    weft::bytes section;
    const message_id id = last_message_ + 1;
    if (const auto sent = record_send(tensors, {to, id, context});
        sent && std::holds_alternative<grad_message>(message.body)) {
      ++last_message_;
      at_[from].sends.add(sent);
      detail::append_message(section, {context, id, mode::smart, {}});
    }
    wires_[{from, to}].push_back(
        carried(from, to, seal(encode(message), default_limits, tensors, section.view())));
  }
  bool advance() {
    std::vector<std::pair<worker_rank, worker_rank>> full;
    for (const auto& [pair, queue] : wires_) {
      if (!queue.empty()) full.push_back(pair);
    }
    std::vector<std::pair<worker_rank, pass_id>> claimed;
    for (worker_rank w = 0; w < at_.size(); ++w) {
      for (const auto& [id, p] : at_[w].passes) {
        if (claims_.contains({w, id}) || p->claim()) {
          claims_.insert({w, id});
          claimed.emplace_back(w, id);
        }
      }
    }
    const std::vector<std::pair<worker_rank, pass_id>> walking(walks_.begin(), walks_.end());
    if (full.empty() && claimed.empty() && walking.empty()) return false;
    std::size_t pick = random_() % (full.size() + claimed.size() + walking.size());
    if (pick < full.size()) {
      deliver(full[pick]);
    } else if (pick -= full.size(); pick < claimed.size()) {
      work(claimed[pick]);
    } else {
      const auto [w, id] = walking[pick - claimed.size()];
      walks_.erase({w, id});
      act(w, id, at_[w].passes.at(id)->walk_on());
    }
    return true;
  }
  void deliver(std::pair<worker_rank, worker_rank> pair) {
    incoming_message in(std::move(wires_[pair].front()));
    wires_[pair].pop_front();
    if (!in.check()) throw std::logic_error("an unreadable frame");
    std::optional<peer_message> recorded;
    if (const auto section = in.section(section_kind::autograd)) {
      const auto said = detail::read_message(*section, static_cast<std::uint32_t>(at_.size()));
      if (!said) throw std::logic_error("a damaged section");
      recorded = peer_message{pair.first, said->message, said->context};
    }
    unsealed came = unseal(in, recorded);
    const auto message = decode(came.what);
    if (!message) throw std::logic_error("undecodable");
    one_worker& to = at_[pair.second];
    if (!to.passes.contains(message->pass)) {
      switch (to.ended.admit(*message, pair.second)) {
      case admission::stale:
        return;
      case admission::refuse:
        throw std::logic_error("refused");
      case admission::fresh:
        const auto* grad = std::get_if<grad_message>(&message->body);
        if (grad && grad->opens && grad->opens->plan != 0) {
          const pass_id before{context, message->pass.initiator, grad->opens->plan};
          repeat(pair.second, message->pass, *to.plans.at(before), grad->opens->settings);
        } else {
          make(pair.second, message->pass, graph_retention::release);
        }
      }
    }
    local_pass& p = *to.passes.at(message->pass);
    act(pair.second, message->pass, p.arrive(pair.first, message->body, std::move(came.tensors)));
  }
  void work(std::pair<worker_rank, pass_id> job) {
    claims_.erase(job);
    const worker_rank w = job.first;
    const pass_id id = job.second;
    local_pass& p = *at_[w].passes.at(id);
    p.evaluate([&](worker_rank to, packed_gradients&& g, bool) {
      send(w, to, {id, std::move(g.message)}, g.tensors);
    });
    act(w, id, p.completed());
  }
  void act(worker_rank w, const pass_id& id, outputs out) {
    one_worker& me = at_[w];
    for (wave_output::any& o : out) {
      if (auto* t = std::get_if<wave_output::transmit>(&o)) {
        send(w, t->to, t->message, {});
      } else if (std::holds_alternative<wave_output::commit>(o)) {
        local_pass& p = *me.passes.at(id);
        if (p.can_be_kept()) me.plans[id] = p.keep();
        me.gradients.merge(std::move(p.gradients()));
      } else if (std::holds_alternative<wave_output::finished>(o)) {
        results_[id] = std::nullopt;
        captured_ = me.passes.at(id)->captured();
      } else if (std::holds_alternative<wave_output::walks>(o)) {
        walks_.insert({w, id});
      } else if (auto* a = std::get_if<wave_output::aborted>(&o)) {
        if (w == id.initiator) results_[id] = std::move(*a);
      } else if (auto* v = std::get_if<wave_output::violation>(&o)) {
        throw std::logic_error("worker " + std::to_string(v->from) + " sent " + v->text);
      }
    }
    if (me.passes.at(id)->over()) {
      me.ended.add(id);
      me.passes.erase(id);
      claims_.erase({w, id});
      walks_.erase({w, id});
    }
  }

  dice random_;
  std::vector<one_worker> at_;
  std::map<std::pair<worker_rank, worker_rank>, std::deque<frame>> wires_;
  std::set<std::pair<worker_rank, pass_id>> claims_, walks_;
  std::size_t piece_ = 1024;
  std::map<pass_id, std::optional<wave_output::aborted>> results_;
  std::vector<at::Tensor> captured_;  // by the last pass that finished
  std::size_t gradients_sent_ = 0;
  std::set<worker_rank> got_gradients_;
  message_id last_message_ = 0;
  std::uint32_t last_pass_ = 0;
};

}  // namespace weft::autograd::test
