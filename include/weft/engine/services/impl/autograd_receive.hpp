// SPDX-License-Identifier: BSL-1.0
// Bodies of ../autograd_service.hpp: what comes from other workers, and their loss.
#pragma once

#include <weft/engine/services/autograd_section.hpp>
#include <weft/engine/services/impl/autograd_backward.hpp>

#include <iterator>
#include <utility>
#include <variant>

namespace weft {
namespace engine {

inline expected<void> autograd_service::frame(weft::link& from, incoming_message& m) {
  autograd::unsealed came;
  std::optional<autograd::peer_message> recorded;
  if (const auto section = m.section(section_kind::autograd)) {
    const auto said = autograd::detail::read_message(*section, me_.world_size());
    if (!said || said->message == 0 || !said->joined.empty()) {
      return broken_protocol("gradients of a message that nobody recorded");
    }
    recorded = autograd::peer_message{from.rank(), said->message, said->context};
  }
  try {
    came = autograd::unseal(m, recorded);
  } catch (const rpc_error& e) {
    return broken_protocol("an autograd frame: " + words_of(e));
  }
  if (!came.what.empty() && came.tensors.empty() && !came.allocation_error) {
    const auto kind = static_cast<std::uint8_t>(came.what.front());
    const auto body = came.what.subspan(1);
    if (kind == release_frame) return release_arrived(from, body);
    if (kind == joined_frame) return joined_arrived(from, body);
    if (kind == steps_frame) return steps_arrived(from, body);
  }
  std::optional<autograd::control> message;
  try {
    message = autograd::decode(came.what);
  } catch (const std::bad_alloc&) {  // the peer decides how long it is
    return tl::unexpected(error(errc::resource_exhausted, "no memory for an autograd frame",
                                call_progress::maybe_executed));
  }
  if (!message) return broken_protocol("an autograd frame that is no message");
  if (recorded && (recorded->context != message->pass.context ||
                   !std::holds_alternative<autograd::grad_message>(message->body))) {
    return broken_protocol("gradients that belong to another context");
  }
  if (message->pass.initiator >= me_.world_size() ||
      autograd::creator_of(message->pass.context) >= me_.world_size()) {
    return broken_protocol("an autograd frame of an impossible pass");
  }
  if (auto* no = std::get_if<autograd::abort_message>(&message->body)) {
    // Who takes the initiator for lost while it can be reached from here is cut off itself.
    const auto first = message->pass.initiator;
    const bool here =
        first == me_.rank() || me_.link_to(first).current_state() != weft::link::state::down;
    if (no->reason == autograd::abort_reason::lost && no->origin == first && here) {
      no->origin = from.rank();
    }
  }
  return control_arrived(from, *message, std::move(came.tensors), came.allocation_error);
}

inline expected<void> autograd_service::release_arrived(weft::link& from,
                                                        std::span<const std::byte> body) {
  if (body.size() != 8) return broken_protocol("an autograd release of a wrong length");
  const auto id = load<autograd::context_id>(body.data());
  if (autograd::creator_of(id) != from.rank() || from.rank() == me_.rank()) {
    return broken_protocol("an autograd release by a worker that did not create the context");
  }
  if (const auto context = find(id)) {
    forget_behind_steps(context, "was released by its creator '" + from.name() + "'");
  } else {
    const std::lock_guard lock(mutex_);
    released_.add(id);
  }
  return {};
}

inline expected<void> autograd_service::joined_arrived(weft::link&,
                                                       std::span<const std::byte> body) {
  weft::detail::byte_source in(body);
  const auto id = in.get<autograd::context_id>();
  const auto ranks = autograd::detail::read_ranks(in, me_.world_size());
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    return autograd::serial_of(id) != 0 && autograd::serial_of(id) <= last_context_;
  };
  if (!ranks || autograd::creator_of(id) != me_.rank() || !known()) {
    return broken_protocol("an autograd frame about a context that this worker did not create");
  }
  add_joined(id, *ranks);
  return {};
}

inline expected<void> autograd_service::steps_arrived(weft::link&,
                                                      std::span<const std::byte> body) {
  weft::detail::byte_source in(body);
  const auto id = in.get<autograd::context_id>();
  const auto steps = autograd::detail::decode_steps(in);
  if (!in.at_end()) return broken_protocol("an autograd frame of steps that is cut off");
  const auto context = find(id);
  effects todo;
  if (context) {
    const std::lock_guard lock(context->mutex);
    if (context->waiting_steps.size() > most_passes) {
      return broken_protocol("an autograd frame of more steps than passes can bring");
    }
    prepare(steps, context->waiting_steps);
    run_waiting_steps(*context, todo);
  } else {
    prepare(steps, todo.steps);
    // No call of the context has come here: there are no gradients, and nothing to step with.
    if (const std::string why = absence(id); !why.empty()) todo.lost = context_gone(why);
  }
  run_effects(context, std::move(todo));
  return {};
}

/// With the gradients that are known to be good. Under the context's lock.
inline void autograd_service::run_waiting_steps(context_state& c, effects& todo) {
  if (c.waiting_steps.empty() || (c.outcome_pending() && !c.released)) return;
  std::move(c.waiting_steps.begin(), c.waiting_steps.end(), std::back_inserter(todo.steps));
  c.waiting_steps.clear();
  todo.lost = c.released ? c.release_reason : c.invalid_reason;
  if (!todo.lost) todo.gradients = c.gradients;
  todo.release = std::exchange(c.waiting_release, {});
}

inline expected<void> autograd_service::control_arrived(weft::link& from,
                                                        const autograd::control& what,
                                                        std::vector<at::Tensor> tensors,
                                                        const error& allocation_error) {
  const auto context = find(what.pass.context);
  effects todo;
  expected<std::shared_ptr<autograd::local_pass>> pass(nullptr);
  bool known = false;
  if (context) {
    const std::lock_guard lock(context->mutex);
    known = !context->released;
    if (known) pass = admit(*context, from.rank(), what, todo);
    if (pass && *pass)
      hear(context, *pass, from, what.body, std::move(tensors), allocation_error, todo);
  }
  if (!known) {
    // Nothing to ask for here any more; whoever asks must hear that, or the pass would wait.
    if (autograd::begins(what.body)) {
      const std::string why = absence(what.pass.context);
      refuse({from.rank(), what.pass, "the context " + (why.empty() ? "is unknown there" : why)});
    }
    return {};
  }
  const auto violation = std::exchange(todo.violation, std::nullopt);
  run_effects(context, std::move(todo));
  if (!pass) return tl::unexpected(pass.error());
  if (violation) {
    return broken_protocol("an autograd frame: " + violation->text);
  }
  return {};
}

/// Under the context's lock.
inline void autograd_service::hear(const intrusive_ptr<context_state>& c,
                                   const std::shared_ptr<autograd::local_pass>& pass,
                                   const weft::link& from, const autograd::control_body& body,
                                   std::vector<at::Tensor> tensors, const error& allocation_error,
                                   effects& todo) {
  if (pass->is_ending() && std::holds_alternative<autograd::end_message>(body)) return;
  if (!allocation_error && commits_by_computing(*c, *pass, from.rank(), body)) {
    // Not on the thread that reads links. Until then gradients() waits, and so do the steps, and a
    // release that comes behind them.
    autograd::control_body rest = body;
    if (auto* end = std::get_if<autograd::end_message>(&rest)) {
      prepare(std::exchange(end->steps, {}), c->waiting_steps);
      pass->set_ending();
    }
    return post_or_die(me_.compute_pool(), [this, c, pass, rank = from.rank(), rest] {
      whole_step(c, pass, [&] { return pass->arrive(rank, rest); });
    });
  }
  if (std::holds_alternative<autograd::which_message>(body)) {
    const autograd::waits_message answer{missing_here(*c, *pass)};
    todo.answers.emplace_back(from.rank(), autograd::encode({pass->plan().pass(), answer}));
    return;
  }
  if (const auto* waits = std::get_if<autograd::waits_message>(&body)) {
    const auto w = c->waiters.find(pass->plan().pass());
    if (w != c->waiters.end()) w->second->waits[from.rank()] = waits->text;
    return;
  }
  const auto* grad = std::get_if<autograd::grad_message>(&body);
  const bool opens = grad && grad->opens && pass->plan().phase() == autograd::wave_phase::idle;
  autograd::outputs out;
  if (grad && allocation_error) {
    out = pass->gradients_lost(from.rank(), *grad,
                               "gradients from worker '" + from.name() +
                                   "' did not fit: " + allocation_error.detail().text);
  } else {
    out = pass->arrive(from.rank(), body, std::move(tensors));
  }
  step(*c, pass, std::move(out), todo);
  if (opens) look_for_lost(*c, pass, todo);
}

/// Whose gradients a pass without discovery waits for may have been lost before it began; nothing
/// is sent there that would tell. Under the context's lock.
inline void autograd_service::look_for_lost(context_state& c,
                                            const std::shared_ptr<autograd::local_pass>& pass,
                                            effects& todo) {
  std::set<autograd::worker_rank> from;
  pass->plan().each_missing([&](const autograd::peer_message& m) { from.insert(m.peer); });
  from.insert(pass->plan().participants().begin(), pass->plan().participants().end());
  for (const auto rank : from) {
    if (pass->over()) return;
    if (me_.link_to(rank).current_state() != weft::link::state::down) continue;
    step(c, pass, pass->lost(rank), todo);
  }
}

/// This message is the last that a pass waits for, and what it adds must be summed up.
inline bool autograd_service::commits_by_computing(const context_state& c,
                                                   autograd::local_pass& pass, worker_rank from,
                                                   const autograd::control_body& body) {
  const bool last = std::holds_alternative<autograd::end_message>(body)
                        ? from == pass.plan().pass().initiator && !pass.plan().is_initiator()
                        : std::holds_alternative<autograd::done_message>(body);
  return last && pass.plan().phase() == autograd::wave_phase::settled &&
         c.gradients.overlaps(pass.gradients());
}

/// The pass that a message is about, made if it is new; null if there is nothing to do. Under the
/// context's lock.
inline expected<std::shared_ptr<autograd::local_pass>>
autograd_service::admit(context_state& c, std::uint32_t from, const autograd::control& what,
                        effects& todo) {
  const auto refused = [&](std::string why) {
    todo.refusals.push_back({from, what.pass, std::move(why)});
  };
  // Whoever does something for a pass that is not, stops when it hears so.
  const auto unknown = [&](const char* why) -> expected<std::shared_ptr<autograd::local_pass>> {
    if (!std::holds_alternative<autograd::abort_message>(what.body)) refused(why);
    if (autograd::blame_for(what, from, me_.rank()) == autograd::blame::somebody) return nullptr;
    return broken_protocol(std::string("an autograd frame: ") + why);
  };
  const bool mine = what.pass.initiator == me_.rank();
  if (const auto at = c.passes.find(what.pass); at != c.passes.end()) return at->second;
  if (std::holds_alternative<autograd::which_message>(what.body) ||
      std::holds_alternative<autograd::waits_message>(what.body)) {
    return nullptr;
  }
  // Of those that this worker began, whatever is not under way is over.
  const bool begun = what.pass.number != 0 && what.pass.number <= c.last_pass;
  if (mine && !begun) return unknown("the pass was not begun");
  switch (mine ? autograd::admission::stale : c.ended.admit(what, me_.rank())) {
  case autograd::admission::fresh:
    break;
  case autograd::admission::stale:
    // Who says done to a pass that was given up here may not have been told.
    if (autograd::begins(what.body) ||
        (mine && !std::holds_alternative<autograd::abort_message>(what.body))) {
      refused("the pass is over on worker '" + me_.name() + "'");
    }
    return nullptr;
  case autograd::admission::refuse:
    return unknown("the pass is not known");
  }
  if (c.passes.size() >= most_passes) {
    c.ended.add(what.pass);
    refused(std::to_string(most_passes) +
            " passes are under way in this autograd context on worker '" + me_.name() + "'");
    return nullptr;
  }
  std::shared_ptr<autograd::local_pass> pass;
  const auto* grad = std::get_if<autograd::grad_message>(&what.body);
  if (grad && grad->opens && grad->opens->plan != 0) {
    const auto kept = find_plan(c, what.pass.initiator, grad->opens->plan);
    std::vector<std::shared_ptr<torch::autograd::Node>> owners;
    if (!kept || !kept->lock(owners)) {
      std::move(owners.begin(), owners.end(), std::back_inserter(todo.nodes));
      c.ended.add(what.pass);
      refused("the plan that the pass repeats is not known on worker '" + me_.name() + "'");
      return nullptr;
    }
    pass = std::make_shared<autograd::local_pass>(what.pass, *kept, grad->opens->settings,
                                                  std::move(owners));
  } else {
    pass = std::make_shared<autograd::local_pass>(what.pass, me_.rank(), me_.world_size(), c.sends);
  }
  c.passes.emplace(what.pass, pass);
  // Lost after this: `down` finds the pass, for it takes the same lock later.
  if (me_.link_to(what.pass.initiator).current_state() == weft::link::state::down) {
    step(c, pass, pass->lost(what.pass.initiator), todo);
    return nullptr;
  }
  return pass;
}

inline void autograd_service::fail_waits(const error& why) {
  std::map<autograd::context_id, intrusive_ptr<context_state>> all;
  {
    const std::lock_guard lock(mutex_);
    run_ended_ = why;
    all = contexts_;
  }
  for (const auto& [id, context] : all) {
    effects todo;
    {
      const std::lock_guard lock(context->mutex);
      context->run_ended = why;
      // Whoever is told that a pass has failed finds no gradients of it later.
      for (const auto& [which, waiter] : std::map(context->waiters)) {
        waiter->run_ended = why;
        const auto pass = context->passes.at(which);
        step(*context, pass, pass->abort(autograd::abort_reason::cancelled, "the run ended"), todo);
      }
      if (context->pass_over) todo.wake.push_back(std::exchange(context->pass_over, nullptr));
    }
    run_effects(context, std::move(todo));
  }
}

inline void autograd_service::down(weft::link& peer, const error&) {
  std::map<autograd::context_id, intrusive_ptr<context_state>> all;
  {
    const std::lock_guard lock(mutex_);
    all = contexts_;
  }
  const std::string why = "ended with its creator '" + peer.name() + "'";
  for (const auto& [id, context] : all) {
    const bool ends = context->creator == peer.rank();
    std::map<autograd::pass_id, std::shared_ptr<autograd::local_pass>> passes;
    // Its reply would have told the creator of this worker, and of those that joined below.
    const bool unheard = context->brought_by == peer.rank() && !ends;
    std::vector<std::uint32_t> joined;
    {
      const std::lock_guard lock(context->mutex);
      // Before its passes end, or other threads would find that they came to nothing, and go on.
      if (ends && !context->released) context->invalid_reason = context_gone(why);
      passes = context->passes;
      context->joined.erase(peer.rank());
      if (unheard && !context->released) {
        joined.assign(context->joined.begin(), context->joined.end());
        joined.push_back(me_.rank());
      }
    }
    if (!joined.empty()) send_joined(id, joined);
    for (const auto& [which, pass] : passes) {
      whole_step(context, pass, [&] {
        if (pass->is_ending()) return autograd::outputs();  // it has succeeded
        if (which.initiator == peer.rank() && pass->plan().promised() && !context->invalid_reason) {
          context->invalid_reason = outcome_unknown(peer);
        }
        return pass->lost(peer.rank());
      });
    }
    if (ends) forget(context, why);
  }
}

}  // namespace engine
}  // namespace weft
