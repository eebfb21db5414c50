// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/service.hpp: backward passes, and the frames that carry them.
#pragma once

#include <weft/autograd/impl/service.hpp>
#include <weft/core/detail/bare_error.hpp>
#include <weft/core/detail/insist.hpp>

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

/// What is said of the exception; of what came before it, that memory lacked.
[[nodiscard]] inline std::string words_if_possible(const std::exception& e) noexcept {
  try {
    return weft::detail::words_of(e);
  } catch (const std::exception&) {
    return "std::bad_alloc";  // too short to need any
  }
}

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
  } catch (const std::bad_alloc&) {
    return sure_error(errc::resource_exhausted, "no memory for the message (std::bad_alloc)",
                      execution::not_sent);
  } catch (const std::exception& e) {
    return error(errc::not_encodable, words_of(e));
  }
  frames_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

/// Sends the control message that `make` gives. Somebody waits for it: if memory lacks for too
/// long, the loss of the link tells it. Without a lock.
template <class T>
template <class Make>
void live_autograd_service<T>::tell(std::uint32_t to, Make&& make) noexcept {
  try {
    const error failed = insist([&] {
      error why = queue(to, autograd::encode(make()), {});
      if (why == errc::resource_exhausted) throw std::bad_alloc();
      return why;
    });
    if (!failed) me_.to(to).flush();
  } catch (...) {
    me_.to(to).lose(bare_error(errc::resource_exhausted, execution::maybe_executed));
  }
}

template <class T>
void live_autograd_service<T>::refuse(const refusal& what) noexcept {
  const auto no = [&] {
    return autograd::control{
        what.pass, autograd::abort_message{me_.rank(), autograd::abort_reason::refused, what.text}};
  };
  const std::uint32_t first = what.pass.initiator;
  if (what.to != me_.rank()) tell(what.to, no);
  if (what.initiator_too && first != what.to && first != me_.rank()) tell(first, no);
}

// ── steps ──

/// Carries out a step's outputs. Under the context's lock. If it throws, the pass is not over, and
/// is to be given up.
template <class T>
void live_autograd_service<T>::act(context_state& c,
                                   const std::shared_ptr<autograd::local_pass>& pass,
                                   autograd::outputs out, after& todo) {
  const autograd::pass_id id = pass->plan().pass();
  const auto wake = [&](std::optional<autograd::aborted> failure) {
    const auto w = c.waiters.find(id);
    if (w == c.waiters.end()) return;
    w->second->failure = std::move(failure);
    wake_later(w->second->over, todo);
    c.waiters.erase(w);
  };
  std::size_t untold = 0;  // in front
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (const auto* t = std::get_if<autograd::transmit>(&out[i])) {
      const error failed = transmit(*t, todo);
      if (!failed || (pass->over() && failed == errc::peer_died)) continue;
      if (pass->over()) {
        if (untold != i) out[untold] = std::move(out[i]);
        ++untold;
        continue;
      }
      autograd::outputs end = failed == errc::peer_died
                                  ? pass->lost(t->to)
                                  : pass->give_up(autograd::abort_reason::failed, failed.message());
      // Instead of what is left: who was to be asked now need not be.
      if (!end.empty()) return act(c, pass, std::move(end), todo);
    } else if (std::holds_alternative<autograd::commit>(out[i])) {
      try {
        c.gradients.merge(std::move(pass->gradients()));
      } catch (const std::exception& e) {
        // The pass has succeeded elsewhere: what is known is that these sums are not right.
        c.spoiled = with_if_possible(
            bare_error(errc::autograd_pass_aborted, execution::executed), [&](error_detail& d) {
              d.ran = execution::executed;
              d.text = "the gradients of a pass could not be added up: " + words_of(e);
            });
      }
    } else if (auto* a = std::get_if<autograd::aborted>(&out[i])) {
      wake(std::move(*a));
    } else if (std::holds_alternative<autograd::finished>(out[i])) {
      wake(std::nullopt);
    } else if (auto* v = std::get_if<autograd::violation>(&out[i])) {
      if (v->on == autograd::blame::somebody) {
        try {
          todo.refusals.push_back({v->from, id, std::move(v->text), false});
        } catch (const std::bad_alloc&) {
          if (!pass->over()) throw;
        }
      } else if (!todo.violation) {
        todo.violation = std::move(*v);
      }
    }
  }
  if (untold != 0) {
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(untold), out.end());
    todo.untold.swap(out);  // once for a pass, and for one pass
  }
  if (pass->over()) {
    bury(c, pass, todo);
  } else {
    todo.run.reserve(todo.run.size() + 1);
    if (pass->claim()) todo.run.push_back(pass);
  }
}

template <class T>
error live_autograd_service<T>::transmit(const autograd::transmit& what, after& todo) noexcept {
  try {
    if (error failed = queue(what.to, autograd::encode(what.message), {})) return failed;
  } catch (const std::exception&) {
    return bare_error(errc::resource_exhausted, execution::not_sent);
  }
  try {
    todo.flush.push_back(what.to);
  } catch (const std::bad_alloc&) {
    me_.to(what.to).flush();
  }
  return {};
}

/// Forgets a pass that is over. If memory lacks for that, it is kept: it does nothing any more, and
/// goes with its context.
template <class T>
void live_autograd_service<T>::bury(context_state& c,
                                    const std::shared_ptr<autograd::local_pass>& pass,
                                    after& todo) {
  if (c.pass_over) wake_later(std::exchange(c.pass_over, nullptr), todo);
  try {
    const autograd::pass_id id = pass->plan().pass();
    todo.destroy.push_back(pass);
    c.ended.add(id);
    c.passes.erase(id);
  } catch (const std::bad_alloc&) {
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
    why = autograd::detail::words_if_possible(e);
  }
  // Those who were asked are told twice, at most.
  try {
    act(c, pass, pass->give_up(autograd::abort_reason::failed, std::move(why)), todo);
  } catch (const std::bad_alloc&) {
    todo.failing = pass;  // again, where one may wait for memory
  }
}

/// What a step had no memory for. Without the lock.
template <class T>
void live_autograd_service<T>::give_up(const ref<context_state>& c,
                                       const std::shared_ptr<autograd::local_pass>& pass) noexcept {
  const char* const why = "std::bad_alloc";
  after todo;
  try {
    insist([&] {
      const std::lock_guard lock(c->mutex);
      act(*c, pass, pass->give_up(autograd::abort_reason::failed, why), todo);
    });
  } catch (const std::bad_alloc&) {
    // Nobody but who waits for it is told by a message.
    const autograd::pass_id id = pass->plan().pass();
    if (id.initiator != me_.rank()) {
      me_.to(id.initiator).lose(bare_error(errc::resource_exhausted, execution::maybe_executed));
    }
    const std::lock_guard lock(c->mutex);
    if (const auto w = c->waiters.find(id); w != c->waiters.end()) {
      w->second->failure = autograd::aborted{me_.rank(), autograd::abort_reason::failed, why};
      wake_later(w->second->over, todo);
      c->waiters.erase(w);
    }
  }
  finish(c, std::move(todo));
}

/// Without the lock; what `todo` holds is destroyed here.
template <class T>
void live_autograd_service<T>::finish(const ref<context_state>& c, after todo) noexcept {
  // Others are woken before the system is asked to write: they begin meanwhile.
  for (auto& pass : todo.run) {
    // After `stop_pool` nothing runs any more; that drops the pass with the worker.
    try {
      insist([&] { asio::post(me_.pool(), [this, c, pass] { run(c, pass); }); });
    } catch (const std::bad_alloc&) {
      run(c, pass);  // it is claimed: nobody else would
    }
  }
  for (const ref<event>& e : todo.wake) e->set();
  for (const std::uint32_t rank : todo.flush) me_.to(rank).flush();
  for (const autograd::output& o : todo.untold) {
    const auto& t = std::get<autograd::transmit>(o);
    tell(t.to, [&t] { return t.message; });
  }
  if (todo.failing) give_up(c, todo.failing);
  for (const refusal& no : todo.refusals) refuse(no);
  if (todo.violation) {
    const ref<link> from(&me_.to(todo.violation->from));
    try {
      insist([&] {
        const error why(errc::protocol_error, "an autograd frame: " + todo.violation->text,
                        execution::maybe_executed, origin::transport);
        asio::post(me_.context(), [from, why] { from->lose(why); });
      });
    } catch (const std::bad_alloc&) {
      from->lose(bare_error(errc::protocol_error, execution::maybe_executed));
    }
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
    broken = autograd::detail::words_if_possible(e);
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
  const time_point own = later(me_.time().now(), limit.value_or(me_.settings().call_deadline));
  const auto here = this_scope();
  return here && here->deadline ? std::min(own, *here->deadline) : own;
}

template <class T>
rpc_error live_autograd_service<T>::failure_of(const context_state& c, const autograd::aborted& why,
                                               execution if_lost) const {
  const std::string& who = name_of(why.origin);
  std::string text = "backward on worker '" + who + "': " + why.text;
  if (why.origin == me_.rank() && why.reason == autograd::abort_reason::refused) {
    const std::lock_guard lock(c.mutex);
    if (c.released) return rpc_error(c.gone);
  }
  errc code = errc::autograd_pass_aborted;
  execution ran = execution::executed;
  if (why.reason == autograd::abort_reason::lost) {
    text = "worker '" + who + "' was lost in backward";
    code = errc::peer_died;
    ran = if_lost;
  } else if (why.reason == autograd::abort_reason::misused) {
    code = errc::invalid_argument;
  }
  return rpc_error(error(code, std::move(text), ran).with([&](error_detail& d) { d.peer = who; }));
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
  bool begun = false;  // others may have heard of it, or nodes run
  {
    const std::lock_guard lock(state->mutex);
    if (state->released) throw rpc_error(state->gone);
    if (state->run_ended) {
      throw rpc_error(state->run_ended.with([](error_detail& d) { d.ran = execution::not_sent; }));
    }
    if (state->passes.size() >= most_passes) {
      throw rpc_error(errc::too_many_calls, std::to_string(most_passes) +
                                                " passes are under way in this autograd context");
    }
    const autograd::pass_id id{state->id, me_.rank(), ++state->last_pass};
    pass = std::make_shared<autograd::local_pass>(id, me_.rank(), me_.world_size(), state->sends,
                                                  retention);
    const auto begun_at = state->passes.emplace(id, pass).first;
    try {
      state->waiters.emplace(id, waiter);
    } catch (const std::bad_alloc&) {
      state->passes.erase(begun_at);
      throw;
    }
    step(*state, pass, todo, [&] { return pass->begin(std::move(from)); });
    begun = !todo.flush.empty() || !todo.run.empty();
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
  std::optional<autograd::aborted> failure;
  {
    const std::lock_guard lock(state->mutex);
    failure = waiter->failure;
    // The pass itself goes with the pool and the links, or is told of the culprit before.
    if (!failure && waiter->run_ended) {
      throw rpc_error(
          waiter->run_ended.with([](error_detail& d) { d.ran = execution::maybe_executed; }));
    }
  }
  if (failure) {
    throw failure_of(*state, *failure, begun ? execution::maybe_executed : execution::not_sent);
  }
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
      if (state->run_ended) throw rpc_error(state->run_ended);
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
    try {
      co_await event::async_wait(over, asio::use_awaitable);
    } catch (const std::system_error&) {
      throw rpc_error(errc::cancelled, "waiting for gradients was cancelled",
                      execution::not_executed);
    }
  }
}

}  // namespace detail
}  // namespace weft
