// SPDX-License-Identifier: BSL-1.0
// Bodies of ../rref_service.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/engine/services/impl/rref_core.hpp>
#include <weft/engine/services/impl/rref_unmade.hpp>
#include <weft/engine/services/lookup.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/service.hpp>
#include <weft/wire/detail/broken_protocol.hpp>

namespace weft::engine {

inline rref_service::rref_service(engine::worker& me) : core_(make_intrusive<core>(me)) {
  static_cast<void>(&registered<lookup_function>);  // also where nobody looks anything up
}

inline void rref_service::fail_waits(const error& why) { names_.close(why); }
inline asio::awaitable<void> rref_service::stop(time_point) {
  names_.close(error(errc::shutting_down, "the run is over", call_progress::not_executed));
  co_return;
}

inline void rref_service::detach() noexcept {
  std::map<rref_id, core::value> values;
  engine::worker* me = nullptr;
  {
    const std::lock_guard lock(core_->mutex);
    me = std::exchange(core_->me, nullptr);
    values.swap(core_->values);
  }
  for (std::uint32_t n; (n = core_->users.load()) != 0;) core_->users.wait(n);
  names_.close(error(errc::shutting_down, "the worker is gone", call_progress::not_executed));
  for (const auto& [id, v] : values) {
    if (me && v.function != 0) {
      core::unmet_failure{v.function, id.creator, v.failure}.tell(*me);
    }
  }
}

inline intrusive_ptr<reference> rref_service::share(std::shared_ptr<void> value, type_id type) try {
  std::shared_ptr<void> object = core::at_home(core_, std::move(value));
  const rref_id fresh = core_->apply([&](auto& b, auto& o) {
    const rref_id id = b.create_local();
    b.value_ready(id, o);
    auto& kept = core_->values[id];
    kept.object = std::move(object);
    kept.type = type;
    return id;
  });
  return make_intrusive<reference>(core_, fresh);
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline std::optional<rref_service::created> rref_service::create(std::uint32_t owner) try {
  const auto what = core_->apply(
      [&](auto& b, auto&) {
        const auto made = b.create_remote(owner);
        if (made && owner == b.self()) core_->values[made->id];
        return made;
      },
      core::sending::now);
  if (!what) return std::nullopt;
  return created{make_intrusive<reference>(core_, what->id), *what};
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline void rref_service::never_sent(const rref_id& id, std::string_view function,
                                     const error& reason) noexcept {
  const error why = not_made(reason, function);
  core_->apply([&](auto& b, auto& o) {
    if (id.owner == b.self()) {
      const auto at = core_->values.find(id);
      if (at != core_->values.end() && !at->second.made()) {
        at->second.failure = why;
        at->second.function = name_hash(function);
      }
    } else if (const auto view = b.imported(id);
               view && view->state == rref_protocol::import_state::registering) {
      core_->never_made[id] = why;
    }
    b.creation_dropped(id, o);
  });
}

inline error rref_service::state_of(const reference& r) const try {
  if (r.broken()) return r.broken();
  const std::lock_guard lock(core_->mutex);
  if (r.id().owner == core_->ledger.self()) {
    const auto at = core_->values.find(r.id());
    if (at == core_->values.end()) return {};
    at->second.function = 0;
    return at->second.failure;
  }
  const auto view = core_->ledger.imported(r.id());
  if (view && view->state == rref_protocol::import_state::broken) {
    const auto why = core_->never_made.find(r.id());
    return why != core_->never_made.end() ? why->second : core_->why_broken(view->why, r.id());
  }
  return {};
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline std::shared_ptr<void> rref_service::local(const reference& r, type_id type) const try {
  if (r.broken()) throw rpc_error(r.broken());
  const std::lock_guard lock(core_->mutex);
  const auto elsewhere = [&](const char* what, std::uint32_t owner) {
    return rpc_error(errc::rref_not_owner, "reference " + to_string(r.id()) + what +
                                               core_->me->members().members[owner].name +
                                               "'; local() is for the owner, use to_here()");
  };
  if (r.id().owner != core_->ledger.self()) throw elsewhere(" belongs to worker '", r.id().owner);
  const rref_id end = core_->end_of(r.id(), core::asks::at_once);
  const auto at = core_->values.find(end);
  const bool is_there = at != core_->values.end();
  if (!is_there && !core_->ledger.value(end)) {
    throw rpc_error(errc::rref_lost, "reference " + to_string(r.id()) + " holds nothing");
  }
  if (is_there) at->second.function = 0;
  if (is_there && at->second.failure) throw rpc_error(at->second.failure);
  if (!is_there || !at->second.object) {  // the request that makes it may not have come yet
    throw rpc_error(errc::invalid_argument,
                    "the object of reference " + to_string(r.id()) +
                        " is still being made; use to_here() or call(), which wait");
  }
  if (const auto* on = forward_target(at->second.object.get(), at->second.type)) {
    throw elsewhere(" leads on to an object of worker '", on->to->id().owner);
  }
  void* const object = weft::detail::as_type(at->second.object.get(), at->second.type, type);
  if (!object) {
    throw rpc_error(errc::bad_arguments,
                    "reference " + to_string(r.id()) + " holds an object of another type");
  }
  return {at->second.object, object};
} catch (const std::bad_alloc&) {
  out_of_memory();
}

inline void rref_service::publish(std::string name, std::string type,
                                  const intrusive_ptr<reference>& held) try {
  if (error why = published_names::refuse(name)) throw rpc_error(std::move(why));
  if (error why = state_of(*held)) throw rpc_error(std::move(why));
  names_.publish(std::move(name), {std::move(type), held});
} catch (const std::bad_alloc&) {
  out_of_memory();
}
inline asio::awaitable<expected<intrusive_ptr<reference>>>
rref_service::look_up(weft::worker& me, std::uint32_t rank, std::string name, std::string type,
                      call_settings settings) {
  return engine::look_up(me, rank, std::move(name), std::move(type), settings);
}

inline rref_protocol::ledger_counters rref_service::counters() const {
  const std::lock_guard lock(core_->mutex);
  auto now = core_->ledger.counters();
  now.frames = core_->frames;
  for (const auto& [id, v] : core_->values) now.waiting += v.waiting.size();
  return now;
}
inline std::string rref_service::describe() const {
  const std::lock_guard lock(core_->mutex);
  return or_die([&] { return core_->ledger.describe(); });
}
inline bool rref_service::idle() const {
  const std::lock_guard lock(core_->mutex);
  return core_->ledger.idle() && names_.idle();
}

// ── sending ──

/// A request to oneself has a reference of its own to its target until that is found: the one that
/// it was called by may go before it arrives. Towards others the DEL follows it on the link.
inline void rref_service::carry_home(rref_handover& handover) {
  const reference& target = *handover.target;
  if (target.broken()) throw rpc_error(target.broken());
  const std::lock_guard lock(core_->mutex);
  handover.carries_target = core_->ledger.add_local_ref(target.id());
  if (!handover.carries_target) {
    throw rpc_error(errc::rref_lost, "reference " + to_string(target.id()) + " holds nothing");
  }
}

inline void rref_service::attach(weft::link& to, const frame_header&, message& m) {
  auto* handover = m.record().find<rref_handover>();
  if (!handover) return;
  std::optional<rref_id> target;
  if (handover->target) {
    const error why = state_of(*handover->target);
    if (why && handover->target->id().owner != to.self().rank()) throw rpc_error(why);
    target = handover->target->id();
    if (to.rank() == to.self().rank()) carry_home(*handover);
  }
  const auto& given = handover->references;
  if (given.size() > rref_protocol::references_per_message) {
    throw rpc_error(errc::message_too_large,
                    "the message hands over " + std::to_string(given.size()) + " references; " +
                        std::to_string(rref_protocol::references_per_message) + " fit");
  }
  bytes section;
  rref_protocol::append_head(section, target, handover->forwards, handover->create,
                             static_cast<std::uint32_t>(given.size()));
  handover->pinned.reserve(given.size());
  const bool all = given.empty() || core_->apply([&](auto& b, auto&) {
    for (const auto& reference : given) {
      const auto what =
          reference->broken() ? std::nullopt : b.transfer_out(reference->id(), to.rank());
      if (!what) return false;
      handover->pinned.push_back(what->number);
    }
    return true;
  });
  if (!all) {
    const error why = state_of(*given[handover->pinned.size()]);
    throw rpc_error(why ? why : to.reason());
  }
  for (std::size_t i = 0; i != given.size(); ++i) {
    rref_protocol::append_transfer(section, {given[i]->id(), handover->pinned[i]});
  }
  m.section(section_kind::rref, section.view());
}

inline void rref_service::sent(weft::link&, message_extensions& record) {
  auto* handover = record.find<rref_handover>();
  if (!handover) return;
  handover->pinned.clear();
  handover->carries_target = false;
  if (!handover->create) return;
  const std::lock_guard lock(core_->mutex);
  core_->ledger.creation_sent(handover->create->id);
}

inline void rref_service::dropped(weft::link&, message_extensions& record) {
  auto* handover = record.find<rref_handover>();
  if (!handover) return;
  const auto numbers = std::exchange(handover->pinned, {});
  const bool carried = std::exchange(handover->carries_target, false);
  core_->apply([&](auto& b, auto& o) {
    if (carried) b.drop_local_ref(handover->target->id(), o);
    for (const std::uint64_t number : numbers) b.transfer_dropped(number, o);
  });
}

// ── receiving ──

/// What a peer says here counts, also in a message that fails alone: if there is no memory to heed
/// it, the process ends.
inline expected<void> rref_service::arrive(weft::link& from, incoming_message& m) try {
  const auto bytes = m.section(section_kind::rref);
  if (!bytes) return {};
  const bool request = m.header().kind == frame_kind::request;
  const auto section = rref_protocol::read_section(*bytes, request);
  if (!section) return tl::unexpected(section.error());
  const auto impossible = [](const char* what) {
    return broken_protocol(std::string("an rref section with an impossible ") + what);
  };
  if (!take_over(from, m, section->transfers)) return impossible("transfer");
  if (section->target && !find_target(from, m, *section->target)) return impossible("target");
  if (section->target) m.record().find<rref_handover>()->forwards = section->forwards;
  if (section->create && !keep_result(from, m, *section->create)) return impossible("creation");
  return {};
} catch (const std::bad_alloc&) {
  out_of_memory();
}

/// False: no correct peer sends this. As in the next two.
inline bool rref_service::take_over(weft::link& from, incoming_message& m,
                                    const std::vector<rref_protocol::transfer>& given) {
  rref_handover& handover = m.record().get<rref_handover>();
  handover.here = &from.self();
  handover.references.reserve(given.size());  // so that none dies under the lock
  return given.empty() || core_->apply([&](auto& b, auto& o) {
    for (const rref_protocol::transfer& what : given) {
      const auto result = b.transfer_in(from.rank(), what, o);
      if (!result) return false;
      handover.references.push_back(
          result->held()
              ? make_intrusive<reference>(core_, what.id)
              : make_intrusive<reference>(what.id, core_->why_broken(result->why, what.id)));
    }
    return true;
  });
}

inline bool rref_service::find_target(weft::link& from, incoming_message& m, const rref_id& id) {
  auto& found = m.record().get<call_target>();
  found.reference = {id.creator, id.serial};
  const auto result = core_->apply([&](auto& b, auto&) {
    const bool carried = from.rank() == b.self();
    return carried ? rref_protocol::import_result() : b.acquire(from.rank(), id);
  });
  if (!result) return false;
  if (!result->held()) {
    found.failure = core_->why_broken(result->why, id);
    return true;
  }
  // Until the request is done, with the message's record.
  m.record().get<rref_handover>().target = make_intrusive<reference>(core_, id);
  look(core_, id, found, rref_core::asks::first);
  return true;
}

inline bool rref_service::keep_result(weft::link& from, incoming_message& m,
                                      const rref_protocol::creation& create) {
  const bool accepted = core_->apply([&](auto& b, auto& o) {
    if (b.created(from.rank(), create, o) != rref_protocol::received::accepted) return false;
    core_->values.try_emplace(create.id);
    return true;
  });
  if (!accepted) return false;
  m.record().put<result_keeper>(
      std::make_unique<kept_outcome>(core_, create.id, m.header().function));
  return true;
}

inline expected<void> rref_service::frame(weft::link& from, incoming_message& m) {
  constexpr std::size_t each = rref_protocol::message_bytes;
  const auto payload = m.whole().payload();
  const std::size_t count = payload.size() / each;
  const bool whole =
      payload.size() == count * each && count != 0 && count <= rref_protocol::messages_per_frame;
  const bool understood = whole && core_->apply([&](auto& b, auto& o) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto what = rref_protocol::decode_message(payload.subspan(i * each, each));
      if (!what) return false;
      if (b.frame(from.rank(), *what, o) == rref_protocol::received::refused) return false;
    }
    return true;
  });
  if (understood) return {};
  return broken_protocol("an invalid reference message");
}

inline void rref_service::batch_ends() noexcept {
  core_->apply([](auto&, auto&) {}, core::sending::now);
}

inline void rref_service::down(weft::link& peer, const error&) {
  core_->apply([&](auto& b, auto& o) { b.peer_lost(peer.rank(), o); });
}

}  // namespace weft::engine
