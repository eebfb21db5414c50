// SPDX-License-Identifier: BSL-1.0
// Bodies of ../autograd_service.hpp: backward passes, and the frames that carry them.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/services/impl/autograd_service.hpp>

#include <algorithm>
#include <functional>
#include <variant>

namespace weft {

namespace autograd::detail {

/// Does something at a point in time unless it ends before. On the worker's thread.
class alarm final : public deadline_entry {
 public:
  alarm(timer_list& list, time_point when, std::function<void()> act)
      : list_(list), act_(std::move(act)) {
    list_.add(*this, when);
  }
  ~alarm() override { list_.remove(*this); }
  void expired() override { act_(); }

 private:
  timer_list& list_;
  std::function<void()> act_;
};

}  // namespace autograd::detail

namespace engine {

// ── sending ──

/// Queues a frame without writing it; what is wrong is said. Any thread, also under a context's
/// lock.
inline error autograd_service::queue(std::uint32_t to, std::span<const std::byte> what,
                                     const std::vector<at::Tensor>& tensors,
                                     std::span<const std::byte> section) {
  weft::frame sealed;
  try {
    sealed = autograd::seal(what, me_.settings().bounds, tensors, section);
  } catch (const rpc_error& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    if (tensors.empty()) throw;
    return error(errc::resource_exhausted, "no memory for their bytes (std::bad_alloc)");
  } catch (const std::exception& e) {
    return error(errc::not_encodable, words_of(e));
  }
  if (!me_.link_to(to).append(std::move(sealed))) {
    return error(errc::peer_died, "worker '" + name_of(to) + "' was lost");
  }
  frames_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

/// As `queue`, on the thread that computed them. Gradients with a history leave as a recorded
/// message, so that a later pass finds its way on.
inline error autograd_service::queue_gradients(const intrusive_ptr<context_state>& c,
                                               std::uint32_t to, const autograd::control& what,
                                               const std::vector<at::Tensor>& tensors) {
  const auto bytes = autograd::encode(what);
  std::shared_ptr<autograd::send_node> node;
  autograd::message_id message = 0;
  if (at::GradMode::is_enabled()) {
    const std::lock_guard lock(c->mutex);
    message = c->last_message + 1;
    node = autograd::record_send(tensors, {to, message, c->id});
    if (node) c->last_message = message;
    if (node && !c->released) c->sends.add(node);
  }
  if (!node) return queue(to, bytes, tensors);
  weft::bytes section;
  autograd::detail::append_message(section, {c->id, message, c->how, {}});
  error failed = queue(to, bytes, tensors, section.view());
  if (failed) {  // destroyed without the lock
    const std::lock_guard lock(c->mutex);
    static_cast<void>(c->sends.remove(message));
  }
  return failed;
}

/// Who asks without end and does not read the answers is no participant of any pass; a full outbox
/// alone may be that of a slow one. Counts as if it is then refused. Those already written count as
/// well, as long as as many frames of others wait.
inline bool autograd_service::takes_refusals(std::uint32_t to) {
  const std::size_t waiting = me_.link_to(to).waiting();
  const std::lock_guard lock(mutex_);
  std::size_t& refused = refused_[to];
  refused = std::min(refused, waiting);
  if (refused >= me_.settings().outbox_frames) return false;
  ++refused;
  return true;
}

inline void autograd_service::refuse(const refusal& what) {
  const autograd::abort_message no{me_.rank(), autograd::abort_reason::refused, what.text};
  const auto bytes = autograd::encode({what.pass, no});
  std::set<std::uint32_t> all{what.to};
  if (what.initiator_too) all.insert(what.pass.initiator);
  for (const std::uint32_t to : all) {
    if (to == me_.rank()) continue;
    if (!takes_refusals(to)) continue;
    if (!queue(to, bytes, {})) me_.link_to(to).flush();
  }
}

// ── steps ──

/// Carries out what a step of the pass says, in order. Under the context's lock.
inline void autograd_service::step(context_state& c,
                                   const std::shared_ptr<autograd::local_pass>& pass,
                                   autograd::outputs out, effects& todo) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    autograd::outputs more = apply(c, pass, out[i], todo);
    std::move(more.begin(), more.end(), std::back_inserter(out));
  }
  if (pass->over()) {
    const autograd::pass_id id = pass->plan().pass();
    todo.destroy.push_back(pass);
    const bool listed = c.passes.erase(id) != 0;
    if (listed && id.initiator != me_.rank()) c.ended.add(id);
    run_waiting_steps(c, todo);
    if (const intrusive_ptr<event> over = std::exchange(c.pass_over, nullptr)) over->set();
  } else if (pass->claim()) {
    todo.run.push_back(pass);
  }
}

/// Takes the lock, steps the pass by `make`, and finishes that without the lock.
template <class Make>
void autograd_service::whole_step(const intrusive_ptr<context_state>& c,
                                  const std::shared_ptr<autograd::local_pass>& pass, Make&& make) {
  effects todo;
  {
    const std::lock_guard lock(c->mutex);
    step(*c, pass, make(), todo);
  }
  run_effects(c, std::move(todo));
}

/// Returns what follows from it, to be carried out as well.
inline autograd::outputs autograd_service::apply(context_state& c,
                                                 const std::shared_ptr<autograd::local_pass>& pass,
                                                 autograd::wave_output::any& one, effects& todo) {
  const autograd::pass_id id = pass->plan().pass();
  const auto wake = [&](autograd::wave_output::aborted* failure) {
    const auto w = c.waiters.find(id);
    if (w == c.waiters.end()) return;
    todo.wake.push_back(w->second->over);
    if (failure) w->second->failure = std::move(*failure);
    c.waiters.erase(w);
  };
  if (const auto* t = std::get_if<autograd::wave_output::transmit>(&one)) {
    const error failed = queue(t->to, autograd::encode(t->message), {});
    if (failed == errc::peer_died) return pass->lost(t->to);
    if (failed) return pass->abort(autograd::abort_reason::failed, failed.message());
    todo.flush.push_back(t->to);
  } else if (auto* success = std::get_if<autograd::wave_output::commit>(&one)) {
    keep_plan(c, *pass);
    prepare(success->steps, c.waiting_steps);
    try {
      c.gradients.merge(std::move(pass->gradients()));
    } catch (const std::exception& e) {  // libtorch's, such as a lack of memory
      // The pass has succeeded elsewhere: what is known is that these sums are not right.
      c.invalid_reason = error(errc::autograd_pass_aborted,
                               "the gradients of a pass could not be added up: " + words_of(e),
                               call_progress::executed);
    }
  } else if (auto* a = std::get_if<autograd::wave_output::aborted>(&one)) {
    wake(a);
  } else if (std::holds_alternative<autograd::wave_output::finished>(one)) {
    if (const auto w = c.waiters.find(id); w != c.waiters.end()) {
      w->second->captured = pass->captured();
    }
    for (const auto& [owner, steps] : pass->plan().steps()) {
      if (owner == me_.rank() || pass->plan().participants().contains(owner)) continue;
      weft::bytes what;
      what.number(steps_frame);
      what.number(c.id);
      what.number(static_cast<std::uint32_t>(steps.size()));
      for (const std::uint64_t s : steps) what.number(s);
      if (!queue(owner, what.view(), {})) todo.flush.push_back(owner);
    }
    wake(nullptr);
  } else if (std::holds_alternative<autograd::wave_output::walks>(one)) {
    todo.walk.push_back(pass);
  } else if (auto* v = std::get_if<autograd::wave_output::violation>(&one)) {
    if (v->on == autograd::blame::somebody) {
      todo.refusals.push_back({v->from, id, v->text, false});
    } else if (!todo.violation) {
      todo.violation = std::move(*v);
    }
  }
  return {};
}

/// Without the lock; what `todo` holds is destroyed here.
inline void autograd_service::run_effects(const intrusive_ptr<context_state>& c, effects todo) {
  // Others are woken before the system is asked to write: they begin meanwhile.
  for (auto& pass : todo.run) {
    // After `stop_pool` nothing runs any more; that drops the pass with the worker.
    post_or_die(me_.compute_pool(), [this, c, pass] { evaluate(c, pass); });
  }
  for (auto& pass : todo.walk) {
    post_or_die(me_.compute_pool(),
                [this, c, pass] { whole_step(c, pass, [&] { return pass->walk_on(); }); });
  }
  for (const intrusive_ptr<event>& e : todo.wake) e->set();
  for (const std::uint32_t rank : todo.flush) me_.link_to(rank).flush();
  for (const refusal& no : todo.refusals) refuse(no);
  for (const auto& [to, answer] : todo.answers) {
    if (!takes_refusals(to)) continue;  // it asks without end, and reads no answer
    if (!queue(to, answer, {})) me_.link_to(to).flush();
  }
  for (const auto& step : todo.steps) step->begin(todo.gradients, todo.lost);
  if (!todo.release.empty()) forget(c, todo.release);
  if (!todo.violation) return;
  const error why(errc::protocol_error, "an autograd frame: " + todo.violation->text,
                  call_progress::maybe_executed, origin::transport);
  post_or_die(me_.context(), [l = intrusive_ptr<weft::link>(&me_.link_to(todo.violation->from)),
                              why] { l->mark_down(why); });
}

/// On a pool thread.
inline void autograd_service::evaluate(const intrusive_ptr<context_state>& c,
                                       const std::shared_ptr<autograd::local_pass>& pass) {
  std::set<autograd::worker_rank> unreachable;
  std::string broken;
  effects todo;
  const auto send = [&](autograd::worker_rank to, autograd::packed_gradients&& packed, bool more) {
    const autograd::control what{pass->plan().pass(), std::move(packed.message)};
    const error failed = queue_gradients(c, to, what, packed.tensors);
    if (!failed && more) {
      me_.link_to(to).flush();
    } else if (!failed) {
      todo.flush.push_back(to);  // in one write with what `completed` says
    } else if (failed == errc::peer_died) {
      unreachable.insert(to);
    } else if (broken.empty()) {
      broken = "gradients to worker '" + name_of(to) + "': " + failed.message();
    }
  };
  // What is thrown is libtorch's, while it adds up gradients: nodes and hooks are caught before.
  try {
    pass->evaluate([&](autograd::worker_rank to, autograd::packed_gradients&& packed, bool more) {
      or_die([&] { send(to, std::move(packed), more); });
    });
  } catch (const std::exception& e) {
    broken = words_of(e);
  } catch (...) {
    broken = "something that is not a std::exception was thrown";
  }
  {
    const std::lock_guard lock(c->mutex);
    const auto behind = pass->failed_behind();
    const std::string where =
        behind ? " (gradients came by " + words_of_message(*c, *behind) + ")" : std::string();
    // In one step, as the pass may be claimed again behind it: what failed here is not done.
    step(*c, pass,
         broken.empty() ? pass->completed(where)
                        : pass->abort(autograd::abort_reason::failed, broken),
         todo);
  }
  run_effects(c, std::move(todo));
  for (const auto rank : unreachable) whole_step(c, pass, [&] { return pass->lost(rank); });
}

// ── the caller's side ──

inline time_point autograd_service::deadline_of(std::optional<duration> limit) const {
  const time_point own = later(me_.time().now(), limit.value_or(me_.settings().call_deadline));
  const auto here = this_scope();
  return here && here->deadline ? std::min(own, *here->deadline) : own;
}

inline rpc_error autograd_service::failure_of(const context_state& c,
                                              const autograd::wave_output::aborted& why,
                                              call_progress if_lost) const {
  const std::string& who = name_of(why.origin);
  std::string text = "backward on worker '" + who + "': " + why.text;
  if (why.origin == me_.rank() && why.reason == autograd::abort_reason::refused) {
    const std::lock_guard lock(c.mutex);
    if (c.released) return rpc_error(c.release_reason);
  }
  errc code = errc::autograd_pass_aborted;
  call_progress ran = call_progress::executed;
  if (why.reason == autograd::abort_reason::lost) {
    text = "worker '" + who + "' was lost in backward";
    code = errc::peer_died;
    ran = if_lost;
  } else if (why.reason == autograd::abort_reason::misused) {
    code = errc::invalid_argument;
  }
  return rpc_error(error(code, std::move(text), ran).with([&](error_detail& d) { d.peer = who; }));
}

inline asio::awaitable<std::vector<at::Tensor>>
autograd_service::backward(context_ptr context, autograd::backward_request what) try {
  const intrusive_ptr<context_state> state = state_of(context);
  std::vector<autograd::root> from;
  std::vector<torch::autograd::Edge> wanted;
  try {
    from = autograd::roots_of(what.roots, what.gradients);
    if (what.settings.leaves == autograd::leaf_gradients::inputs) {
      wanted = autograd::inputs_of(what.inputs, what.capture);
    }
  } catch (const std::bad_alloc&) {  // libtorch's
    throw rpc_error(errc::resource_exhausted, "no memory for the roots (std::bad_alloc)");
  } catch (const std::exception& e) {  // a sentence of ours, or libtorch's
    throw rpc_error(errc::invalid_argument, words_of(e));
  }
  for (const autograd::riding_step& s : what.then) {
    if (s.owner >= me_.world_size()) {
      throw rpc_error(errc::invalid_argument, "a step of an owner that does not exist");
    }
  }
  const time_point deadline = deadline_of(what.limit);
  const auto waiter = make_intrusive<pass_waiter>();
  std::shared_ptr<autograd::local_pass> pass;
  effects todo;
  bool begun = false;  // others may have heard of it, or nodes run
  {
    const std::lock_guard lock(state->mutex);
    if (state->release_reason) throw rpc_error(state->release_reason);
    if (state->run_ended) {
      throw rpc_error(
          state->run_ended.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
    }
    if (state->passes.size() >= most_passes) {
      throw rpc_error(errc::too_many_calls, std::to_string(most_passes) +
                                                " passes are under way in this autograd context");
    }
    const autograd::pass_id id{state->id, me_.rank(), ++state->last_pass};
    pass = new_pass(*state, id, from, what.settings, todo);
    pass->want(std::move(wanted), what.capture);
    std::map<autograd::worker_rank, std::vector<std::uint64_t>> steps;
    for (const autograd::riding_step& s : what.then) steps[s.owner].push_back(s.number);
    for (auto& [owner, all] : steps) {  // each once, ascending
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
    }
    pass->ride(std::move(steps));
    state->passes.emplace(id, pass);
    state->waiters.emplace(id, waiter);
    step(*state, pass, pass->begin(std::move(from)), todo);
    look_for_lost(*state, pass, todo);
    begun = !todo.flush.empty() || !todo.run.empty() || !todo.walk.empty();
  }
  run_effects(state, std::move(todo));

  // At the deadline, or when the caller is cancelled, the pass is given up everywhere. False: it
  // was over before.
  const auto abort = [this, state, pass](const char* why) {
    bool open = false;
    whole_step(state, pass, [&] {
      open = !pass->over();
      return pass->abort(autograd::abort_reason::cancelled, why);
    });
    return open;
  };
  bool late = false;
  bool cancelled = false;
  std::string missing;
  const auto give_up = [&] {
    {
      const std::lock_guard lock(state->mutex);
      missing = missing_anywhere(*state, *pass, *waiter);
    }
    late = abort("the deadline passed");
  };
  try {
    std::optional<autograd::detail::alarm> before;
    if (state->how == autograd::mode::fast) {
      const duration left = std::max(deadline - me_.time().now(), duration());
      before.emplace(me_.deadlines(), deadline - left / 8, [&] { ask_for_missing(state, pass); });
    }
    const autograd::detail::alarm at_deadline(me_.deadlines(), deadline, give_up);
    co_await event::wait(waiter->over);
  } catch (const std::system_error&) {
    cancelled = true;
  }
  if (cancelled) {
    abort("the caller was cancelled");
    throw rpc_error(errc::cancelled, "backward was cancelled", call_progress::maybe_executed);
  }
  if (late) {
    throw rpc_error(errc::timed_out, "backward did not end by its deadline" + missing,
                    call_progress::maybe_executed);
  }
  std::optional<autograd::wave_output::aborted> failure;
  {
    const std::lock_guard lock(state->mutex);
    failure = waiter->failure;
    if (waiter->run_ended) {
      throw rpc_error(
          waiter->run_ended.with([](error_detail& d) { d.ran = call_progress::maybe_executed; }));
    }
  }
  if (failure) {
    throw failure_of(*state, *failure,
                     begun ? call_progress::maybe_executed : call_progress::not_sent);
  }
  const std::lock_guard lock(state->mutex);
  if (state->invalid_reason) throw rpc_error(state->invalid_reason);
  co_return std::move(waiter->captured);
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline error autograd_service::ended(const context_ptr& context) const {
  const intrusive_ptr<context_state> state = state_of(context);
  const std::lock_guard lock(state->mutex);
  return state->release_reason;
}

inline std::optional<autograd::gradient_map>
autograd_service::gradients_now(const context_ptr& context) const try {
  const intrusive_ptr<context_state> state = state_of(context);
  const std::lock_guard lock(state->mutex);
  state->check();
  if (state->outcome_pending()) return std::nullopt;
  return state->gradients;
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline asio::awaitable<autograd::gradient_map>
autograd_service::gradients(context_ptr context) try {
  const intrusive_ptr<context_state> state = state_of(context);
  const time_point deadline = deadline_of(std::nullopt);
  bool late = false;
  for (;;) {
    intrusive_ptr<event> over;
    {
      const std::lock_guard lock(state->mutex);
      state->check();
      if (!state->outcome_pending()) co_return state->gradients;
      if (state->run_ended) throw rpc_error(state->run_ended);
      if (!state->pass_over) state->pass_over = make_intrusive<event>();
      over = state->pass_over;
    }
    if (late) {
      throw rpc_error(errc::timed_out, "a pass ran here, and its initiator did not end it in time");
    }
    const autograd::detail::alarm at_deadline(me_.deadlines(), deadline, [&] {
      late = true;
      {
        const std::lock_guard lock(state->mutex);
        if (state->pass_over == over) state->pass_over = nullptr;
      }
      over->set();  // the others that wait look again
    });
    try {
      co_await event::wait(over);
    } catch (const std::system_error&) {
      throw rpc_error(errc::cancelled, "waiting for gradients was cancelled",
                      call_progress::not_executed);
    }
  }
} catch (const std::bad_alloc&) {
  out_of_memory();
}

}  // namespace engine
}  // namespace weft
