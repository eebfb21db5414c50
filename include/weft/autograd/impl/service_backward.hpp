// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/service.hpp: backward passes, and the frames that carry them.
#pragma once

#include <weft/autograd/impl/service.hpp>

#include <functional>
#include <variant>

namespace weft {

namespace autograd::detail {

/// Does something at a point in time unless it ends before. On the worker's thread.
class alarm final : public timed {
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

namespace detail {

// ── sending ──

/// Queues a frame without writing it. Any thread, also under a context's lock.
template <class T>
error live_autograd_service<T>::queue(std::uint32_t to, std::span<const std::byte> what,
                                      const std::vector<at::Tensor>& tensors) {
  try {
    if (!me_.to(to).append(autograd::seal(what, me_.settings().bounds, tensors))) {
      return error(errc::peer_died, "worker '" + name_of(to) + "' was lost");
    }
  } catch (const rpc_error& e) {
    return e.error();
  } catch (const std::exception& e) {
    return error(errc::not_encodable, words_of(e));
  }
  frames_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

template <class T>
void live_autograd_service<T>::refuse(std::uint32_t to, const autograd::pass_id& pass,
                                      std::string text) {
  if (to == me_.rank()) return;
  const autograd::abort_message no{me_.rank(), autograd::abort_reason::refused, std::move(text)};
  if (!queue(to, autograd::encode({pass, no}), {})) me_.to(to).flush();
}

// ── steps ──

/// Carries out a step's outputs. Under the context's lock.
template <class T>
void live_autograd_service<T>::act(context_state& c,
                                   const std::shared_ptr<autograd::local_pass>& pass,
                                   autograd::outputs out, after& todo) {
  const autograd::pass_id id = pass->plan().pass();
  const auto wake = [&](std::optional<autograd::aborted> failure) {
    const auto w = c.waiters.find(id);
    if (w == c.waiters.end()) return;
    w->second->failure = std::move(failure);
    todo.wake.push_back(w->second->over);
    c.waiters.erase(w);
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (const auto* t = std::get_if<autograd::transmit>(&out[i])) {
      const std::uint32_t to = t->to;
      const error failed = queue(to, autograd::encode(t->message), {});
      if (!failed) {
        todo.flush.push_back(to);
        continue;
      }
      autograd::outputs more =
          failed == errc::peer_died
              ? pass->lost(to)
              : pass->give_up(autograd::abort_reason::failed, failed.message());
      std::move(more.begin(), more.end(), std::back_inserter(out));
    } else if (std::holds_alternative<autograd::commit>(out[i])) {
      try {
        c.gradients.merge(std::move(pass->gradients()));
      } catch (const std::exception& e) {
        // The pass has succeeded elsewhere: what is known is that these sums are not right.
        c.spoiled = error(errc::autograd_pass_aborted,
                          "the gradients of a pass could not be added up: " + words_of(e),
                          execution::executed);
      }
    } else if (auto* a = std::get_if<autograd::aborted>(&out[i])) {
      wake(std::move(*a));
    } else if (std::holds_alternative<autograd::finished>(out[i])) {
      wake(std::nullopt);
    } else if (auto* v = std::get_if<autograd::violation>(&out[i])) {
      if (!todo.violation) todo.violation = std::move(*v);
    }
  }
  if (pass->over()) {
    c.ended.add(id);
    c.passes.erase(id);
    todo.destroy.push_back(pass);
    if (c.pass_over) todo.wake.push_back(std::exchange(c.pass_over, nullptr));
  } else if (pass->claim()) {
    todo.run.push_back(pass);
  }
}

/// Steps the pass by `make` and carries that out. If memory lacks for it, or the like, the pass is
/// given up instead: nobody who waits for it is forgotten. Under the context's lock.
template <class T>
template <class Make>
void live_autograd_service<T>::step(context_state& c,
                                    const std::shared_ptr<autograd::local_pass>& pass, after& todo,
                                    Make&& make) {
  std::string why;
  try {
    return act(c, pass, make(), todo);
  } catch (const std::exception& e) {
    why = words_of(e);
  }
  // Those who were asked are told twice, at most.
  act(c, pass, pass->give_up(autograd::abort_reason::failed, why), todo);
}

/// Without the lock; what `todo` holds is destroyed here.
template <class T>
void live_autograd_service<T>::finish(const ref<context_state>& c, after todo) {
  // Others are woken before the system is asked to write: they begin meanwhile.
  for (auto& pass : todo.run) {
    // After `stop_pool` nothing runs any more; that drops the pass with the worker.
    asio::post(me_.pool(), [this, c, p = std::move(pass)] { run(c, p); });
  }
  for (const ref<event>& e : todo.wake) e->set();
  for (const std::uint32_t rank : todo.flush) me_.to(rank).flush();
  if (todo.violation) {
    asio::post(me_.context(), [l = ref<link>(&me_.to(todo.violation->from)),
                               why = std::move(todo.violation->text)] {
      l->lose(error(errc::protocol_error, "an autograd frame: " + why, execution::maybe_executed,
                    origin::transport));
    });
  }
}

/// On a pool thread.
template <class T>
void live_autograd_service<T>::run(const ref<context_state>& c,
                                   const std::shared_ptr<autograd::local_pass>& pass) {
  std::set<autograd::worker_rank> unreachable;
  std::string broken;
  after todo;
  try {
    pass->run([&](autograd::worker_rank to, autograd::packed_gradients&& packed, bool more) {
      const autograd::control what{pass->plan().pass(), std::move(packed.message)};
      const error failed = queue(to, autograd::encode(what), packed.tensors);
      if (!failed && more) {
        me_.to(to).flush();
      } else if (!failed) {
        todo.flush.push_back(to);  // in one write with what `completed` says
      } else if (failed == errc::peer_died) {
        unreachable.insert(to);
      } else if (broken.empty()) {
        broken = "gradients to worker '" + name_of(to) + "': " + failed.message();
      }
    });
  } catch (const std::exception& e) {
    broken = words_of(e);
  } catch (...) {
    broken = "something that is not a std::exception was thrown";
  }
  {
    const std::lock_guard lock(c->mutex);
    step(*c, pass, todo, [&] { return pass->completed(); });
    for (const auto rank : unreachable) {
      step(*c, pass, todo, [&] { return pass->lost(rank); });
    }
    if (!broken.empty()) {
      step(*c, pass, todo, [&] { return pass->give_up(autograd::abort_reason::failed, broken); });
    }
  }
  finish(c, std::move(todo));
}

// ── the caller's side ──

template <class T>
time_point live_autograd_service<T>::deadline_of(std::optional<duration> limit) const {
  const time_point own = me_.time().now() + limit.value_or(me_.settings().call_deadline);
  const auto here = this_scope();
  return here && here->deadline ? std::min(own, *here->deadline) : own;
}

template <class T>
rpc_error live_autograd_service<T>::failure_of(const context_state& c,
                                               const autograd::aborted& why) const {
  const std::string& who = name_of(why.origin);
  std::string text = "backward on worker '" + who + "': " + why.text;
  if (why.origin == me_.rank() && why.reason == autograd::abort_reason::refused) {
    const std::lock_guard lock(c.mutex);
    if (c.released) return rpc_error(c.gone);
  }
  errc code = errc::autograd_pass_aborted;
  if (why.reason == autograd::abort_reason::lost) {
    text = "worker '" + who + "' was lost in backward";
    code = errc::peer_died;
  } else if (why.reason == autograd::abort_reason::misused) {
    code = errc::invalid_argument;
  }
  return rpc_error(error(code, std::move(text), execution::executed).with([&](error_detail& d) {
    d.peer = who;
  }));
}

template <class T>
asio::awaitable<void> live_autograd_service<T>::backward(ref<context_state> state,
                                                         std::vector<at::Tensor> roots,
                                                         std::vector<at::Tensor> gradients,
                                                         autograd::graph_retention retention,
                                                         std::optional<duration> limit) {
  std::vector<autograd::root> from;
  try {
    from = autograd::roots_of(roots, gradients);
  } catch (const std::exception& e) {  // a sentence of ours, or libtorch's
    throw rpc_error(errc::invalid_argument, words_of(e));
  }
  const time_point deadline = deadline_of(limit);
  const auto waiter = make_ref<autograd::detail::pass_waiter>();
  std::shared_ptr<autograd::local_pass> pass;
  after todo;
  {
    const std::lock_guard lock(state->mutex);
    if (state->released) throw rpc_error(state->gone);
    if (state->passes.size() >= most_passes) {
      throw rpc_error(errc::too_many_calls, std::to_string(most_passes) +
                                                " passes are under way in this autograd context");
    }
    const autograd::pass_id id{state->id, me_.rank(), ++state->last_pass};
    pass = std::make_shared<autograd::local_pass>(id, me_.rank(), me_.world_size(), state->sends,
                                                  retention);
    state->waiters.emplace(id, waiter);
    state->passes.emplace(id, pass);
    step(*state, pass, todo, [&] { return pass->begin(std::move(from)); });
  }
  finish(state, std::move(todo));

  // At the deadline, or when the caller is cancelled, the pass is given up everywhere.
  const auto give_up = [this, state, pass](const char* why) {
    after more;
    bool open = false;
    {
      const std::lock_guard lock(state->mutex);
      open = !pass->over();
      if (open) {
        step(*state, pass, more,
             [&] { return pass->give_up(autograd::abort_reason::cancelled, why); });
      }
    }
    finish(state, std::move(more));
    return open;
  };
  bool late = false;
  bool cancelled = false;
  {
    const autograd::detail::alarm at_deadline(me_.deadlines(), deadline,
                                              [&] { late = give_up("the deadline passed"); });
    try {
      co_await event::async_wait(waiter->over, asio::use_awaitable);
    } catch (const std::system_error&) {
      cancelled = true;
    }
  }
  if (cancelled) {
    give_up("the caller was cancelled");
    throw rpc_error(errc::cancelled, "backward was cancelled", execution::maybe_executed);
  }
  if (late) {
    throw rpc_error(errc::timed_out, "backward did not end by its deadline",
                    execution::maybe_executed);
  }
  if (waiter->failure) throw failure_of(*state, *waiter->failure);
  const std::lock_guard lock(state->mutex);
  if (state->spoiled) throw rpc_error(state->spoiled);
}

template <class T>
asio::awaitable<autograd::gradient_map>
live_autograd_service<T>::gradients(ref<context_state> state) {
  const time_point deadline = deadline_of(std::nullopt);
  bool late = false;
  for (;;) {
    ref<event> over;
    {
      const std::lock_guard lock(state->mutex);
      state->check();
      if (!state->settling()) co_return state->gradients;
      if (!state->pass_over) state->pass_over = make_ref<event>();
      over = state->pass_over;
    }
    if (late) {
      throw rpc_error(errc::timed_out, "a pass that ran here was not ended by its initiator");
    }
    const autograd::detail::alarm at_deadline(me_.deadlines(), deadline, [&] {
      late = true;
      {
        const std::lock_guard lock(state->mutex);
        if (state->pass_over == over) state->pass_over = nullptr;
      }
      over->set();  // the others that wait look again
    });
    co_await event::async_wait(over, asio::use_awaitable);
  }
}

// ── receiving ──

template <class T>
expected<void> live_autograd_service<T>::frame(link& from, incoming_message& m) {
  using autograd::detail::broken_protocol;
  autograd::unsealed came;
  try {
    came = autograd::unseal(m);
  } catch (const std::exception& e) {
    return broken_protocol("an autograd frame: " + words_of(e));
  }
  if (!came.what.empty() && came.tensors.empty()) {
    const auto kind = static_cast<std::uint8_t>(came.what.front());
    const auto body = came.what.subspan(1);
    if (kind == autograd::detail::release_frame) return release_arrived(from, body);
    if (kind == autograd::detail::joined_frame) return joined_arrived(from, body);
  }
  auto message = autograd::decode(came.what);
  if (!message) return broken_protocol("an autograd frame that is no message");
  if (message->pass.initiator >= me_.world_size() ||
      autograd::creator_of(message->pass.context) >= me_.world_size()) {
    return broken_protocol("an autograd frame of a pass that cannot be");
  }
  if (auto* no = std::get_if<autograd::abort_message>(&message->body)) {
    // Who takes the initiator for lost while it can be reached from here is cut off itself.
    const auto first = message->pass.initiator;
    const bool here = first == me_.rank() || me_.to(first).now() != link::state::down;
    if (no->reason == autograd::abort_reason::lost && no->origin == first && here) {
      no->origin = from.rank();
    }
  }
  return control_arrived(from, *message, std::move(came.tensors));
}

template <class T>
expected<void> live_autograd_service<T>::release_arrived(link& from,
                                                         std::span<const std::byte> body) {
  using autograd::detail::broken_protocol;
  if (body.size() != 8) return broken_protocol("an autograd release of another length");
  const auto id = detail::load<autograd::context_id>(body.data());
  if (autograd::creator_of(id) != from.rank() || from.rank() == me_.rank()) {
    return broken_protocol("an autograd release by another worker than the creator");
  }
  if (const auto context = find(id)) {
    forget(context, "was released by its creator '" + from.name() + "'");
  } else {
    const std::lock_guard lock(mutex_);
    released_.add(id);
  }
  return {};
}

template <class T>
expected<void> live_autograd_service<T>::joined_arrived(link&, std::span<const std::byte> body) {
  using autograd::detail::broken_protocol;
  if (body.size() < 12) return broken_protocol("an autograd frame that is too short");
  const auto id = detail::load<autograd::context_id>(body.data());
  const auto ranks = autograd::detail::read_ranks(
      body.subspan(12), detail::load<std::uint32_t>(body.data() + 8), me_.world_size());
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    return autograd::serial_of(id) != 0 && autograd::serial_of(id) <= last_context_;
  };
  if (!ranks || autograd::creator_of(id) != me_.rank() || !known()) {
    return broken_protocol("an autograd frame about a context that is not of this worker");
  }
  add_joined(id, *ranks);
  return {};
}

template <class T>
expected<void> live_autograd_service<T>::control_arrived(link& from, const autograd::control& what,
                                                         std::vector<at::Tensor> tensors) {
  const auto context = find(what.pass.context);
  after todo;
  expected<std::shared_ptr<autograd::local_pass>> pass(nullptr);
  bool known = false;
  if (context) {
    const std::lock_guard lock(context->mutex);
    known = !context->released;
    if (known) pass = admit(*context, what, todo);
    if (pass && *pass) {
      if (commits_by_computing(*context, **pass, what.body)) {
        // Not on the thread that reads links. Until then gradients() waits.
        asio::post(me_.pool(),
                   [this, context, p = std::move(*pass), rank = from.rank(), body = what.body] {
                     after more;
                     {
                       const std::lock_guard again(context->mutex);
                       step(*context, p, more, [&] { return p->arrive(rank, body); });
                     }
                     finish(context, std::move(more));
                   });
        return {};
      }
      step(*context, *pass, todo,
           [&] { return (*pass)->arrive(from.rank(), what.body, std::move(tensors)); });
    }
  }
  if (!known) {
    // Nothing to ask for here any more; whoever asks must hear that, or the pass would wait.
    if (std::holds_alternative<autograd::need_message>(what.body)) {
      const std::string text = "the context " + absence(what.pass.context);
      refuse(from.rank(), what.pass, text);
      if (what.pass.initiator != from.rank()) refuse(what.pass.initiator, what.pass, text);
    }
    return {};
  }
  const auto violation = std::exchange(todo.violation, std::nullopt);
  if (!todo.refusal.empty()) {
    refuse(from.rank(), what.pass, todo.refusal);
    if (what.pass.initiator != from.rank()) refuse(what.pass.initiator, what.pass, todo.refusal);
  }
  finish(context, std::move(todo));
  if (!pass) {
    refuse(from.rank(), what.pass, pass.error().detail().text);
    return tl::unexpected(pass.error());
  }
  if (violation) {
    return autograd::detail::broken_protocol("an autograd frame: " + violation->text);
  }
  return {};
}

/// This message is the last that a pass waits for, and what it adds must be summed up.
template <class T>
bool live_autograd_service<T>::commits_by_computing(const context_state& c,
                                                    autograd::local_pass& pass,
                                                    const autograd::control_body& body) {
  const bool last = std::holds_alternative<autograd::end_message>(body) ||
                    std::holds_alternative<autograd::done_message>(body);
  return last && pass.plan().phase() == autograd::wave_phase::settled &&
         c.gradients.overlaps(pass.gradients());
}

/// The pass that a message is about, made if it is new; null if there is nothing to do. Under the
/// context's lock.
template <class T>
expected<std::shared_ptr<autograd::local_pass>>
live_autograd_service<T>::admit(context_state& c, const autograd::control& what, after& todo) {
  using autograd::detail::broken_protocol;
  if (const auto at = c.passes.find(what.pass); at != c.passes.end()) return at->second;
  if (what.pass.initiator == me_.rank() && what.pass.number > c.last_pass) {
    return broken_protocol("an autograd frame of a pass that was not begun");
  }
  switch (c.ended.admit(what, me_.rank())) {
  case autograd::admission::fresh:
    break;
  case autograd::admission::stale:
    if (std::holds_alternative<autograd::need_message>(what.body)) {
      todo.refusal = "the pass is over on worker '" + me_.name() + "'";
    }
    return nullptr;
  case autograd::admission::refuse:
    return broken_protocol("an autograd frame of an unknown pass");
  }
  if (c.passes.size() >= most_passes) {
    c.ended.add(what.pass);
    todo.refusal = std::to_string(most_passes) +
                   " passes are under way in this autograd context on worker '" + me_.name() + "'";
    return nullptr;
  }
  auto pass =
      std::make_shared<autograd::local_pass>(what.pass, me_.rank(), me_.world_size(), c.sends);
  c.passes.emplace(what.pass, pass);
  // Lost after this: `down` finds the pass, for it takes the same lock later.
  if (me_.to(what.pass.initiator).now() == link::state::down) {
    act(c, pass, pass->lost(what.pass.initiator), todo);
    return nullptr;
  }
  return pass;
}

template <class T>
void live_autograd_service<T>::down(link& peer, const error&) {
  std::map<autograd::context_id, ref<context_state>> all;
  {
    const std::lock_guard lock(mutex_);
    all = contexts_;
  }
  for (const auto& [id, context] : all) {
    after todo;
    {
      const std::lock_guard lock(context->mutex);
      context->joined.erase(peer.rank());
      const auto passes = context->passes;
      for (const auto& [which, pass] : passes) {
        step(*context, pass, todo, [&] { return pass->lost(peer.rank()); });
      }
    }
    finish(context, std::move(todo));
    if (context->creator == peer.rank()) {
      forget(context, "ended with its creator '" + peer.name() + "'");
    }
  }
}

}  // namespace detail
}  // namespace weft
