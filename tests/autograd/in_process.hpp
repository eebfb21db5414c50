// SPDX-License-Identifier: BSL-1.0
#pragma once

// Workers in one process whose backward passes talk through queues, for tests of autograd without
// rpc. All that they say to each other, tensors too, is packed into frames and unpacked as links
// do: between some pairs as inside one process (tensors arrive over the sender's storage), between
// the others as over a socket. Order of delivery and of work follows a seed.

#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/frame.hpp>
#include <weft/autograd/pass.hpp>
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
  workers(worker_rank world, std::uint32_t seed) : random_(seed), at_(world) {}

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
  void finish() {
    // bounded: the wave ends after finitely many messages; a hang shows in the watchdog
    while (advance()) {
    }
    for (const auto& w : at_) {
      if (!w.passes.empty()) throw std::logic_error("a pass was kept");
    }
  }
  const std::optional<wave_output::aborted>& result(const pass_id& pass) const {
    return results_.at(pass);
  }

  const gradient_map& gradients(worker_rank w) const { return at_[w].gradients; }
  std::size_t messages_to(worker_rank w) const { return at_[w].messages; }

 private:
  static constexpr context_id context = 42;
  struct one_worker {
    send_table sends;
    gradient_map gradients;
    ended_passes ended;
    std::map<pass_id, std::unique_ptr<local_pass>> passes;
    std::size_t messages = 0;
  };

  local_pass& make(worker_rank w, const pass_id& pass, graph_retention retention) {
    return *(at_[w].passes[pass] = std::make_unique<local_pass>(
                 pass, w, static_cast<worker_rank>(at_.size()), at_[w].sends, retention));
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
    wires_[{from, to}].push_back(carried(from, to, seal(encode(message), default_limits, tensors)));
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
    if (full.empty() && claimed.empty()) return false;
    const std::size_t pick = random_() % (full.size() + claimed.size());
    if (pick < full.size()) {
      deliver(full[pick]);
    } else {
      work(claimed[pick - full.size()]);
    }
    return true;
  }
  void deliver(std::pair<worker_rank, worker_rank> pair) {
    incoming_message in(std::move(wires_[pair].front()));
    wires_[pair].pop_front();
    if (!in.check()) throw std::logic_error("an unreadable frame");
    unsealed came = unseal(in);
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
        make(pair.second, message->pass, graph_retention::release);
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
        me.gradients.merge(std::move(me.passes.at(id)->gradients()));
      } else if (std::holds_alternative<wave_output::finished>(o)) {
        results_[id] = std::nullopt;
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
    }
  }

  dice random_;
  std::vector<one_worker> at_;
  std::map<std::pair<worker_rank, worker_rank>, std::deque<frame>> wires_;
  std::set<std::pair<worker_rank, pass_id>> claims_;
  std::map<pass_id, std::optional<wave_output::aborted>> results_;
  message_id last_message_ = 0;
  std::uint32_t last_pass_ = 0;
};

}  // namespace weft::autograd::test
