// SPDX-License-Identifier: BSL-1.0
// Bodies of ../autograd_service.hpp: contexts, and what is recorded in forward.
#pragma once

#include <weft/autograd/grad_mode.hpp>
#include <weft/autograd/service.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/services/autograd_section.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/serving/served_request.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace weft {

namespace engine {

// ── contexts ──

inline autograd_service::context_ptr autograd_service::open(autograd::mode how) try {
  const std::lock_guard lock(mutex_);
  const auto id = autograd::make_context_id(me_.rank(), ++last_context_);
  auto state = make_intrusive<context_state>(id, how, me_.rank(), me_.rank());
  state->run_ended = run_ended_;
  contexts_.emplace(id, state);
  return state;
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline intrusive_ptr<context_state> autograd_service::find(autograd::context_id id) const {
  const std::lock_guard lock(mutex_);
  const auto at = contexts_.find(id);
  return at == contexts_.end() ? nullptr : at->second;
}

/// The context, made if it is new; or why a call in it cannot be served.
inline auto autograd_service::join(autograd::context_id id, autograd::mode how, std::uint32_t from)
    -> expected<joining> {
  const auto creator = autograd::creator_of(id);
  const auto refuse = [](errc code, std::string text) {
    return joining{
        nullptr, error(code, std::move(text), call_progress::not_executed, origin::remote_runtime)};
  };
  const std::lock_guard lock(mutex_);
  if (const auto at = contexts_.find(id); at != contexts_.end()) return joining{at->second, {}};
  const bool possible = creator < me_.world_size() && autograd::serial_of(id) != 0 &&
                        (creator != me_.rank() || autograd::serial_of(id) <= last_context_);
  if (!possible) {
    return broken_protocol("an impossible autograd context");
  }
  // Lost after this: `down` finds the context, for it takes the same lock later.
  if (creator != me_.rank() && me_.link_to(creator).current_state() == weft::link::state::down) {
    return refuse(errc::autograd_context_gone,
                  "the autograd context of the call ended with its creator '" + name_of(creator) +
                      "'");
  }
  if (creator == me_.rank() || released_.contains(id)) {
    return refuse(errc::autograd_context_gone, "the autograd context of the call was released");
  }
  std::size_t& brought = brought_[from];
  if (brought >= most_contexts) {
    return refuse(errc::resource_exhausted, "the caller's calls already have " +
                                                std::to_string(most_contexts) +
                                                " autograd contexts open at the callee");
  }
  auto state = make_intrusive<context_state>(id, how, creator, from);
  state->run_ended = run_ended_;
  contexts_.emplace(id, state);
  ++brought;
  return joining{std::move(state), {}};
}

/// Why there is no such context here, as the rest of a sentence. Empty: it has not come here yet.
inline std::string autograd_service::absence(autograd::context_id id) const {
  const auto creator = autograd::creator_of(id);
  const std::lock_guard lock(mutex_);
  if (creator >= me_.world_size()) return "never existed";
  const bool mine = creator == me_.rank();
  if (mine ? autograd::serial_of(id) <= last_context_ : released_.contains(id)) {
    return "was released";
  }
  if (!mine && me_.link_to(creator).current_state() == weft::link::state::down) {
    return "ended with its creator '" + name_of(creator) + "'";
  }
  return {};
}

inline void autograd_service::forget(const intrusive_ptr<context_state>& state,
                                     const std::string& why) {
  {
    const std::lock_guard all(mutex_);
    const bool known = contexts_.erase(state->id) != 0;
    if (state->creator != me_.rank()) {
      if (known) --brought_[state->brought_by];
      released_.add(state->id);
    }
  }
  autograd::send_table sends;
  decltype(state->plans) plans;
  autograd::gradient_map gradients;
  std::vector<std::uint32_t> unreported;
  std::map<autograd::pass_id, std::shared_ptr<autograd::local_pass>> passes;
  intrusive_ptr<event> over;
  {
    const std::lock_guard lock(state->mutex);
    if (std::exchange(state->released, true)) return;
    state->release_reason = context_gone(why);
    passes = state->passes;
    if (std::exchange(state->unreported, false)) {
      unreported.assign(state->joined.begin(), state->joined.end());
    }
    over = std::exchange(state->pass_over, nullptr);
  }
  if (over) over->set();
  for (const auto& [id, pass] : passes) {
    whole_step(state, pass,
               [&] { return pass->abort(autograd::abort_reason::refused, "the context " + why); });
  }
  {
    const std::lock_guard lock(state->mutex);
    // A pass that still runs reads the table only while it is planned, so not any more.
    std::swap(sends, state->sends);
    std::swap(plans, state->plans);
    std::swap(gradients, state->gradients);
  }
  if (state->creator == me_.rank()) {
    std::set<autograd::worker_rank> joined;
    {
      const std::lock_guard lock(state->mutex);
      joined = state->joined;
    }
    for (const auto rank : joined) send_release(rank, state->id);
    return;
  }
  if (!unreported.empty()) send_joined(state->id, unreported);
  if (sends.size() == 0) return;
  // Graphs of users' nodes are destroyed where they run, not on an I/O thread.
  post_or_die(me_.compute_pool(), [graph = std::move(sends), sums = std::move(gradients)] {});
}

inline void autograd_service::release(const context_ptr& context) try {
  forget_behind_steps(state_of(context), "was released");
} catch (const std::bad_alloc&) {
  out_of_memory();
}

/// Steps that were prepared before begin first.
inline void autograd_service::forget_behind_steps(const intrusive_ptr<context_state>& state,
                                                  const std::string& why) {
  {
    const std::lock_guard lock(state->mutex);
    if (!state->waiting_steps.empty()) {
      state->waiting_release = why;
      state->release_reason = context_gone(why);
      return;
    }
  }
  forget(state, why);
}

inline void autograd_service::send_release(std::uint32_t to, autograd::context_id id) {
  if (to == me_.rank()) return;
  std::byte what[9];
  store(what, release_frame);
  store(what + 1, id);
  if (!queue(to, what, {})) me_.link_to(to).flush();
}

/// To the creator, which did not hear of them by a reply.
inline void autograd_service::send_joined(autograd::context_id id,
                                          const std::vector<std::uint32_t>& joined) {
  bytes what;
  what.number(joined_frame);
  what.number(id);
  autograd::detail::append_ranks(what, joined);
  const auto creator = autograd::creator_of(id);
  if (!queue(creator, what.view(), {})) me_.link_to(creator).flush();
}

/// Somebody says who joined a context that may be released here already.
inline void autograd_service::add_joined(autograd::context_id id,
                                         const std::vector<std::uint32_t>& joined) {
  if (joined.empty()) return;
  if (const auto context = find(id)) {
    const std::lock_guard lock(context->mutex);
    if (!context->released) {
      for (const auto rank : joined) {
        if (rank == me_.rank()) continue;
        if (context->joined.insert(rank).second) context->unreported = true;
      }
      return;
    }
  }
  if (autograd::creator_of(id) == me_.rank()) {
    for (const auto rank : joined) send_release(rank, id);
  } else {
    send_joined(id, joined);
  }
}

inline std::uint64_t autograd_service::follow(std::weak_ptr<autograd::pass_follower> who) {
  const std::lock_guard lock(followers_mutex_);
  std::erase_if(followers_, [](const auto& f) { return f.second.expired(); });
  followers_.emplace(++last_follower_, std::move(who));
  return last_follower_;
}

/// The steps of those that still are. So they have their turns when the end of the pass is heard,
/// not when the sums are known.
inline void autograd_service::prepare(const std::vector<std::uint64_t>& followers,
                                      prepared_steps& into) const {
  for (const std::uint64_t number : followers) {
    std::shared_ptr<autograd::pass_follower> follower;
    {
      const std::lock_guard lock(followers_mutex_);
      const auto known = followers_.find(number);
      if (known != followers_.end()) follower = known->second.lock();
    }
    if (follower) into.push_back(follower->prepare());
  }
}

inline std::size_t autograd_service::contexts() const {
  const std::lock_guard lock(mutex_);
  return contexts_.size();
}

inline std::size_t autograd_service::passes() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, state] : contexts_) {
    const std::lock_guard inner(state->mutex);
    count += state->passes.size();
  }
  return count;
}

// ── forward ──

inline void autograd_service::attach(weft::link& to, const frame_header& header, message& m) {
  const auto context = state_of(current());
  if (!context || (header.flags & flag_no_reply) != 0) return;
  const auto* table = m.record().find<weft::tensor_table>();
  const bool request = header.kind == frame_kind::request;
  autograd::message_id message = 0;
  std::vector<std::uint32_t> joined;
  {
    std::shared_ptr<autograd::send_node> node;
    const std::lock_guard lock(context->mutex);
    if (context->release_reason) {
      if (!request) return;  // the caller hears what it is told, and that it has no history
      throw rpc_error(
          context->release_reason.with([](error_detail& d) { d.ran = call_progress::not_sent; }));
    }
    if (table && header.kind != frame_kind::failure) {
      try {
        node = autograd::record_send(table->tensors(),
                                     {to.rank(), context->last_message + 1, context->id},
                                     {header.function, request});
      } catch (const std::bad_alloc&) {  // libtorch's
        throw rpc_error(errc::resource_exhausted, "no memory for the message (std::bad_alloc)");
      } catch (const c10::Error& e) {
        throw rpc_error(errc::not_encodable, e.what_without_backtrace());
      }
    }
    // Its gradients come in one frame, of one buffer each.
    if (const auto most = me_.settings().bounds.tensors; node && node->num_inputs() > most) {
      throw rpc_error(errc::not_encodable, "one message of an autograd context has " +
                                               std::to_string(node->num_inputs()) +
                                               " tensors that require grad; at most " +
                                               std::to_string(most) +
                                               " are allowed (options.bounds.tensors)");
    }
    recorded_send* record = nullptr;
    const bool elsewhere = to.rank() != me_.rank();
    const bool reports = !request && elsewhere && context->unreported;
    if (node || reports) {
      record = &m.record().get<recorded_send>();
      record->context = context;
    }
    if (node) {
      message = ++context->last_message;
      context->sends.add(std::move(node));
      record->message = message;
    }
    if (!request) {
      joined.assign(context->joined.begin(), context->joined.end());
      if (reports) {
        context->unreported = false;
        record->told_joined = true;
      }
    } else if (elsewhere && context->joined.insert(to.rank()).second) {
      context->unreported = true;
    }
  }
  bytes section;
  autograd::detail::append_message(section,
                                   {context->id, message, context->how, std::move(joined)});
  m.section(section_kind::autograd, section.view());
}

/// What was not sent leads nowhere, and told nobody.
inline void autograd_service::dropped(weft::link&, message_extensions& record) {
  const auto* sent = record.find<recorded_send>();
  if (!sent || !sent->context) return;
  std::shared_ptr<autograd::send_node> node;  // destroyed without the lock
  const std::lock_guard lock(sent->context->mutex);
  if (sent->message != 0) node = sent->context->sends.remove(sent->message);
  if (sent->told_joined && !sent->context->released) sent->context->unreported = true;
}

inline expected<void> autograd_service::arrive(weft::link& from, incoming_message& m) {
  // What the tensors that required grad at their sender are here.
  const auto receive_as = [&m](autograd::peer_message where) {
    if (!m.section(section_kind::tensors)) return;
    m.record().get<weft::tensor_table>().on_received = [where](std::span<at::Tensor> tensors,
                                                               const std::vector<bool>& computed) {
      if (recording_is_off()) return;
      try {
        autograd::receive(tensors, computed, where);
      } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& e) {
        throw rpc_error(errc::bad_arguments, words_of(e), call_progress::not_executed);
      }
    };
  };
  const auto section = m.section(section_kind::autograd);
  if (!section) {
    receive_as({.peer = from.rank()});
    return {};
  }
  const auto said = autograd::detail::read_message(*section, me_.world_size());
  if (!said) return broken_protocol("an autograd section that is cut off or names no workers");
  const autograd::context_id id = said->context;
  const bool request = m.header().kind == frame_kind::request;
  if (request) {
    if (!said->joined.empty())
      return broken_protocol("an autograd section of a request that names workers");
    auto found = join(id, said->how, from.rank());
    if (!found) return tl::unexpected(std::move(found).error());
    auto& setup = m.record().get<scope_setup>();
    setup.autograd = std::move(found->context);
    setup.refused = std::move(found->refused);
  } else {
    if (autograd::creator_of(id) >= me_.world_size()) {
      return broken_protocol("an impossible autograd context");
    }
    add_joined(id, said->joined);
  }
  receive_as({from.rank(), said->message, id});  // also if it is released here by now
  return {};
}

}  // namespace engine
}  // namespace weft
