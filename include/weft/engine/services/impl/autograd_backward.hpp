// SPDX-License-Identifier: BSL-1.0
// Bodies of ../autograd_service.hpp: backward passes, and the frames that carry them.
#pragma once

#include <weft/core/detail/insist.hpp>
#include <weft/engine/services/impl/autograd_service.hpp>

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

/// Queues a frame without writing it. Throws std::bad_alloc; what else is wrong is said. Any
/// thread, also under a context's lock.
inline error autograd_service::queue(std::uint32_t to, std::span<const std::byte> what,
                                     const std::vector<at::Tensor>& tensors) {
  try {
    if (!me_.link_to(to).append(autograd::seal(what, me_.settings().bounds, tensors))) {
      return error(errc::peer_died, "worker '" + name_of(to) + "' was lost");
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const rpc_error& e) {
    return e.error();
  } catch (const std::exception& e) {
    return error(errc::not_encodable, words_of(e));
  }
  frames_.fetch_add(1, std::memory_order_relaxed);
  return {};
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
    if (!queue(to, bytes, {})) me_.link_to(to).flush();  // if another throws, it is told twice
  }
}

// ── steps ──

/// What is being handled, as far as there is memory for words.
inline std::string autograd_service::caught_words() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return short_of_memory;
    } catch (const std::exception& e) {
      return words_of(e);
    } catch (...) {
      return "something that is not a std::exception was thrown";
    }
  } catch (...) {
    return short_of_memory;
  }
}

/// Carries out a step's outputs, each whole or, if memory lacks, again: what is left stays in
/// `todo` for `finish`. Under the context's lock.
inline void autograd_service::carry_on(context_state& c, effects& todo) noexcept {
  auto& [pass, out, next] = todo.rest;
  try {
    if (todo.give_up) {
      out = pass->give_up(autograd::abort_reason::failed, *todo.give_up);
      next = 0;
      todo.give_up.reset();
    }
    for (; next < out.size(); ++next) carry_out(c, pass, next, todo);
    if (pass->over() && pass->carried == 1) {
      todo.destroy.push_back(pass);
      bury(c, *pass);
    } else if (!pass->over()) {
      todo.run.push_back(pass);
      if (!pass->claim()) todo.run.pop_back();
    }
    --pass->carried;
    pass = nullptr;
  } catch (const std::bad_alloc&) {
    // The rest waits until there is memory.
  }
}

inline void autograd_service::carry_out(context_state& c,
                                        const std::shared_ptr<autograd::local_pass>& pass,
                                        std::size_t which, effects& todo) {
  autograd::outputs& all = todo.rest.out;
  const autograd::pass_id id = pass->plan().pass();
  const auto wake = [&](autograd::aborted* failure) {
    const auto w = c.waiters.find(id);
    if (w == c.waiters.end()) return;
    todo.wake.push_back(w->second->over);  // if it throws, the words are still there
    if (failure) w->second->failure = std::move(*failure);
    c.waiters.erase(w);
  };
  if (const auto* t = std::get_if<autograd::transmit>(&all[which])) {
    const std::uint32_t to = t->to;
    todo.flush.reserve(todo.flush.size() + 1);
    const error failed = queue(to, autograd::encode(t->message), {});
    if (!failed) return todo.flush.push_back(to);
    all.reserve(all.size() + me_.world_size() + 1);  // of a pass that is over nothing gets lost
    autograd::outputs more = failed == errc::peer_died
                                 ? pass->lost(to)
                                 : pass->give_up(autograd::abort_reason::failed, failed.message());
    std::move(more.begin(), more.end(), std::back_inserter(all));
  } else if (std::holds_alternative<autograd::commit>(all[which])) {
    try {
      c.gradients.merge(std::move(pass->gradients()));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      // The pass has succeeded elsewhere: what is known is that these sums are not right.
      c.spoiled = error(errc::autograd_pass_aborted,
                        "the gradients of a pass could not be added up: " + words_of(e),
                        call_progress::executed);
    }
  } else if (auto* a = std::get_if<autograd::aborted>(&all[which])) {
    wake(a);
  } else if (std::holds_alternative<autograd::finished>(all[which])) {
    wake(nullptr);
  } else if (auto* v = std::get_if<autograd::violation>(&all[which])) {
    if (v->on == autograd::blame::somebody) {
      todo.refusals.push_back({v->from, id, v->text, false});
    } else if (!todo.violation) {
      todo.violation = std::move(*v);
    }
  }
}

/// Steps the pass by `make` and carries that out. If memory lacks for it, or the like, the pass is
/// given up instead: nobody who waits for it is forgotten. Under the context's lock.
template <class Make>
void autograd_service::step(context_state& c, const std::shared_ptr<autograd::local_pass>& pass,
                            effects& todo, Make&& make) noexcept {
  todo.rest.pass = pass;
  ++pass->carried;
  todo.rest.out.clear();
  todo.rest.next = 0;
  try {
    todo.rest.out = make();
  } catch (...) {
    todo.give_up = caught_words();
  }
  // Those who were asked are told twice, at most.
  carry_on(c, todo);
}

/// There is no memory for what is left of this pass: who waits here is told at least, and what it
/// did not add up, or may have to, is missed. Others hear nothing, until their deadline.
inline void autograd_service::forsake(context_state& c, const unfinished& rest) noexcept {
  const autograd::pass_id id = rest.pass->plan().pass();
  const std::lock_guard lock(c.mutex);
  if (rest.pass->plan().promised()) c.spoiled = no_sums();
  for (std::size_t i = rest.next; i < rest.out.size(); ++i) {
    if (!std::holds_alternative<autograd::commit>(rest.out[i])) continue;
    c.spoiled = no_sums();
  }
  if (const auto w = c.waiters.find(id); w != c.waiters.end()) {
    w->second->failure =
        autograd::aborted{me_.rank(), autograd::abort_reason::failed, short_of_memory};
    w->second->over->set();
    c.waiters.erase(w);
  }
  --rest.pass->carried;
  bury(c, *rest.pass);
}

/// No step of it follows. Under the lock.
inline void autograd_service::bury(context_state& c, autograd::local_pass& pass) noexcept {
  const autograd::pass_id id = pass.plan().pass();
  const bool listed = c.passes.erase(id) != 0;
  if (listed && id.initiator != me_.rank()) c.ended.add(id, std::move(pass.memory_of_end));
  if (const intrusive_ptr<event> over = std::exchange(c.pass_over, nullptr)) over->set();
}

/// Without the lock; what `todo` holds is destroyed here.
inline void autograd_service::finish(const intrusive_ptr<context_state>& c, effects todo) noexcept {
  for (patience left; todo.rest.pass && left.more();) {
    const std::lock_guard lock(c->mutex);
    carry_on(*c, todo);
  }
  if (todo.rest.pass) forsake(*c, todo.rest);
  // Others are woken before the system is asked to write: they begin meanwhile.
  for (auto& pass : todo.run) {
    // After `stop_pool` nothing runs any more; that drops the pass with the worker.
    try {
      insist([&] { asio::post(me_.compute_pool(), [this, c, pass] { evaluate(c, pass); }); });
    } catch (const std::bad_alloc&) {
      evaluate(c, pass);  // it is claimed: nobody else would
    }
  }
  for (const intrusive_ptr<event>& e : todo.wake) e->set();
  for (const std::uint32_t rank : todo.flush) me_.link_to(rank).flush();
  for (const refusal& no : todo.refusals) {
    try {
      insist([&] { refuse(no); });
    } catch (...) {  // it is not told, and waits until its deadline
    }
  }
  if (!todo.violation) return;
  try {
    insist([&] {
      const error why(errc::protocol_error, "an autograd frame: " + todo.violation->text,
                      call_progress::maybe_executed, origin::transport);
      asio::post(me_.context(), [l = intrusive_ptr<weft::link>(&me_.link_to(todo.violation->from)),
                                 why] { l->mark_down(why); });
    });
  } catch (...) {  // it goes unpunished
  }
}

/// On a pool thread.
inline void autograd_service::evaluate(const intrusive_ptr<context_state>& c,
                                       const std::shared_ptr<autograd::local_pass>& pass) noexcept {
  std::set<autograd::worker_rank> unreachable;
  std::string broken;
  effects todo;
  try {
    pass->evaluate([&](autograd::worker_rank to, autograd::packed_gradients&& packed, bool more) {
      const autograd::control what{pass->plan().pass(), std::move(packed.message)};
      const error failed = queue(to, autograd::encode(what), packed.tensors);
      if (!failed && more) {
        me_.link_to(to).flush();
      } else if (!failed) {
        todo.flush.push_back(to);  // in one write with what `completed` says
      } else if (failed == errc::peer_died) {
        unreachable.insert(to);
      } else if (broken.empty()) {
        broken = "gradients to worker '" + name_of(to) + "': " + failed.message();
      }
    });
  } catch (...) {
    broken = caught_words();
  }
  {
    const std::lock_guard lock(c->mutex);
    // In one step, as the pass may be claimed again behind it: what failed here is not done.
    step(*c, pass, todo, [&] {
      return broken.empty() ? pass->completed()
                            : pass->give_up(autograd::abort_reason::failed, broken);
    });
  }
  finish(c, std::move(todo));
  const auto then = [&](auto&& make) {
    effects more;
    {
      const std::lock_guard lock(c->mutex);
      step(*c, pass, more, make);
    }
    finish(c, std::move(more));
  };
  for (const auto rank : unreachable) then([&] { return pass->lost(rank); });
}

// ── the caller's side ──

inline time_point autograd_service::deadline_of(std::optional<duration> limit) const {
  const time_point own = later(me_.time().now(), limit.value_or(me_.settings().call_deadline));
  const auto here = this_scope();
  return here && here->deadline ? std::min(own, *here->deadline) : own;
}

inline rpc_error autograd_service::failure_of(const context_state& c, const autograd::aborted& why,
                                              call_progress if_lost) const {
  const std::string& who = name_of(why.origin);
  std::string text = "backward on worker '" + who + "': " + why.text;
  if (why.origin == me_.rank() && why.reason == autograd::abort_reason::refused) {
    const std::lock_guard lock(c.mutex);
    if (c.released) return rpc_error(c.gone);
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

inline asio::awaitable<void> autograd_service::backward(context_ptr context,
                                                        std::vector<at::Tensor> roots,
                                                        std::vector<at::Tensor> gradients,
                                                        autograd::graph_retention retention,
                                                        std::optional<duration> limit) {
  const intrusive_ptr<context_state> state = state_of(context);
  std::vector<autograd::root> from;
  try {
    from = autograd::roots_of(roots, gradients);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {  // a sentence of ours, or libtorch's
    throw rpc_error(errc::invalid_argument, words_of(e));
  }
  const time_point deadline = deadline_of(limit);
  const auto waiter = make_intrusive<pass_waiter>();
  auto over = event::wait(waiter->over);
  std::shared_ptr<autograd::local_pass> pass;
  effects todo;
  bool begun = false;  // others may have heard of it, or nodes run
  {
    const std::lock_guard lock(state->mutex);
    if (state->released) throw rpc_error(state->gone);
    if (state->run_ended) {
      throw rpc_error(
          state->run_ended.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
    }
    if (state->passes.size() >= most_passes) {
      throw rpc_error(errc::too_many_calls, std::to_string(most_passes) +
                                                " passes are under way in this autograd context");
    }
    const autograd::pass_id id{state->id, me_.rank(), ++state->last_pass};
    pass = std::make_shared<autograd::local_pass>(id, me_.rank(), me_.world_size(), state->sends,
                                                  retention);
    const auto listed = state->passes.emplace(id, pass).first;
    try {
      state->waiters.emplace(id, waiter);
    } catch (...) {
      state->passes.erase(listed);
      throw;
    }
    step(*state, pass, todo, [&] { return pass->begin(std::move(from)); });
    begun = !todo.flush.empty() || !todo.run.empty() || todo.rest.pass;
  }
  finish(state, std::move(todo));

  // At the deadline, or when the caller is cancelled, the pass is given up everywhere. False: it
  // was over before.
  const auto give_up = [this, state, pass](const char* why) {
    effects more;
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
  bool starved = false;
  try {
    const autograd::detail::alarm at_deadline(me_.deadlines(), deadline,
                                              [&] { late = give_up("the deadline passed"); });
    co_await std::move(over);
  } catch (const std::system_error&) {
    cancelled = true;
  } catch (const std::bad_alloc&) {
    starved = true;
  }
  if (starved) give_up("no memory to wait for it");  // it may succeed meanwhile, and then it has
  if (cancelled) {
    give_up("the caller was cancelled");
    throw rpc_error(errc::cancelled, "backward was cancelled", call_progress::maybe_executed);
  }
  if (late) {
    throw rpc_error(errc::timed_out, "backward did not end by its deadline",
                    call_progress::maybe_executed);
  }
  std::optional<autograd::aborted> failure;
  {
    const std::lock_guard lock(state->mutex);
    failure = waiter->failure;
    // The pass itself goes with the pool and the links, or is told of the culprit before.
    if (!failure && waiter->run_ended) {
      throw rpc_error(
          waiter->run_ended.with([](error_detail& d) { d.ran = call_progress::maybe_executed; }));
    }
    // Another thread has not carried out yet what ended it.
    if (state->waiters.erase(pass->plan().pass()) != 0) throw std::bad_alloc();
  }
  if (failure) {
    throw failure_of(*state, *failure,
                     begun ? call_progress::maybe_executed : call_progress::not_sent);
  }
  const std::lock_guard lock(state->mutex);
  if (state->spoiled) throw rpc_error(state->spoiled);
}

inline error autograd_service::ended(const context_ptr& context) const {
  const intrusive_ptr<context_state> state = state_of(context);
  const std::lock_guard lock(state->mutex);
  return state->released ? state->gone : error();
}

inline std::optional<autograd::gradient_map>
autograd_service::gradients_now(const context_ptr& context) const {
  const intrusive_ptr<context_state> state = state_of(context);
  const std::lock_guard lock(state->mutex);
  state->check();
  if (state->settling()) return std::nullopt;
  return state->gradients;
}

inline asio::awaitable<autograd::gradient_map> autograd_service::gradients(context_ptr context) {
  const intrusive_ptr<context_state> state = state_of(context);
  const time_point deadline = deadline_of(std::nullopt);
  bool late = false;
  for (;;) {
    intrusive_ptr<event> over;
    {
      const std::lock_guard lock(state->mutex);
      state->check();
      if (!state->settling()) co_return state->gradients;
      if (state->run_ended) throw rpc_error(state->run_ended);
      if (!state->pass_over) state->pass_over = make_intrusive<event>();
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
    try {
      co_await event::wait(over);
    } catch (const std::system_error&) {
      throw rpc_error(errc::cancelled, "waiting for gradients was cancelled",
                      call_progress::not_executed);
    }
  }
}

}  // namespace engine
}  // namespace weft
