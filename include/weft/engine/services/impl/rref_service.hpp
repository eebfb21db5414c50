// SPDX-License-Identifier: BSL-1.0
// Bodies of ../rref_service.hpp.
#pragma once

#include <weft/core/detail/bare_error.hpp>
#include <weft/core/detail/insist.hpp>
#include <weft/engine/services/impl/rref_core.hpp>
#include <weft/engine/services/impl/rref_unmade.hpp>
#include <weft/engine/services/lookup.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/service.hpp>

namespace weft::engine {

inline rref_service::rref_service(engine::worker& me) : core_(make_intrusive<core>(me)) {
  static_cast<void>(&registered<lookup_function>);  // also where nobody looks anything up
}

inline void rref_service::fail_waits(const error& why) { names_.close(why); }
inline asio::awaitable<void> rref_service::stop(time_point) {
  names_.close(sure_error(errc::shutting_down, "the run is over", call_progress::not_executed));
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
  names_.close(bare_error(errc::shutting_down, call_progress::not_executed));  // says nothing now
  for (const auto& [id, v] : values) {
    if (me && v.function != 0) {
      core::unmet_failure{v.function, id.creator, v.failure}.tell(*me);
    }
  }
}

inline intrusive_ptr<reference> rref_service::share(std::shared_ptr<void> value, type_id type) {
  std::shared_ptr<void> object = core::at_home(core_, std::move(value));
  intrusive_ptr<reference> held = make_intrusive<reference>(rref_id{});
  core_->apply([&](auto& b, auto& o) {
    const rref_id fresh = b.create_local();
    held->hold(core_, fresh);
    b.value_ready(fresh, o);
    auto& kept = core_->values[fresh];  // before the object leaves: its deleter takes this lock
    kept.object = std::move(object);
    kept.type = type;
  });
  return held;
}

inline std::optional<rref_service::created> rref_service::create(std::uint32_t owner) {
  intrusive_ptr<reference> held = make_intrusive<reference>(rref_id{});
  const auto what = core_->apply(
      [&](auto& b, auto& o) {
        const auto made = b.create_remote(owner);
        if (!made) return made;
        held->hold(core_, made->id);
        try {
          if (owner == b.self()) core_->values[made->id];
        } catch (...) {
          b.creation_dropped(made->id, o);
          throw;
        }
        return made;
      },
      core::sending::now);
  if (!what) return std::nullopt;
  return created{std::move(held), *what};
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
      try {
        core_->never_made[id] = why;
      } catch (const std::bad_alloc&) {  // then they are told without its words
      }
    }
    b.creation_dropped(id, o);
  });
}

inline error rref_service::state_of(const reference& r) const {
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
}

inline std::shared_ptr<void> rref_service::local(const reference& r, type_id type) const {
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
  if (const auto* on = leads_on(at->second.object.get(), at->second.type)) {
    throw elsewhere(" leads on to an object of worker '", on->to->id().owner);
  }
  void* const object = weft::detail::as_type(at->second.object.get(), at->second.type, type);
  if (!object) {
    throw rpc_error(errc::bad_arguments,
                    "reference " + to_string(r.id()) + " holds an object of another type");
  }
  return {at->second.object, object};
}

inline void rref_service::publish(std::string name, std::string type,
                                  const intrusive_ptr<reference>& held) {
  if (error why = published_names::refuse(name)) throw rpc_error(std::move(why));
  if (error why = state_of(*held)) throw rpc_error(std::move(why));
  names_.publish(std::move(name), {std::move(type), held});
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
  return core_->ledger.describe();
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
      rref_protocol::append_transfer(section, *what);
    }
    return true;
  });
  if (!all) {
    const error why = state_of(*given[handover->pinned.size()]);
    throw rpc_error(why ? why : to.reason());
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

/// What a peer says in a message it says once: a moment without memory must not lose it, and no
/// step is done twice for it. Each is insisted on alone; it does not throw once it has happened.
inline expected<void> rref_service::arrive(weft::link& from, incoming_message& m) {
  const auto bytes = m.section(section_kind::rref);
  if (!bytes) return {};
  const bool request = m.header().kind == frame_kind::request;
  const auto section = insist([&] { return rref_protocol::read_section(*bytes, request); });
  if (!section) return tl::unexpected(section.error());
  const auto impossible = [](const char* what) {
    return tl::unexpected(error(errc::protocol_error,
                                std::string("an rref section with an impossible ") + what,
                                call_progress::maybe_executed, origin::transport));
  };
  if (!insist([&] { return take_over(from, m, section->transfers); })) {
    return impossible("transfer");
  }
  if (section->target && !insist([&] { return find_target(from, m, *section->target); })) {
    return impossible("target");
  }
  if (section->target) m.record().find<rref_handover>()->forwards = section->forwards;
  if (section->create && !insist([&] { return keep_result(from, m, *section->create); })) {
    return impossible("creation");
  }
  return {};
}

/// False: no correct peer sends this. After it threw it goes on where it was, as the next two do.
inline bool rref_service::take_over(weft::link& from, incoming_message& m,
                                    const std::vector<rref_protocol::transfer>& given) {
  rref_handover& handover = m.record().get<rref_handover>();
  handover.here = &from.self();
  // The handles are made before the step, so that what it takes always has an owner.
  handover.references.reserve(given.size());
  while (handover.references.size() < given.size()) {
    handover.references.push_back(make_intrusive<reference>(given[handover.references.size()].id));
  }
  return given.empty() || core_->apply([&](auto& b, auto& o) {
    for (; handover.taken < given.size(); ++handover.taken) {
      const rref_protocol::transfer& what = given[handover.taken];
      reference& held = *handover.references[handover.taken];
      const auto result = b.transfer_in(from.rank(), what, o);
      if (!result) return false;
      if (result->held()) {
        held.hold(core_, what.id);
      } else {
        held.break_with(core_->why_broken(result->why, what.id));
      }
    }
    return true;
  });
}

inline bool rref_service::find_target(weft::link& from, incoming_message& m, const rref_id& id) {
  rref_handover& handover = m.record().get<rref_handover>();
  auto& found = m.record().get<call_target>();
  if (!handover.target) {
    auto held = make_intrusive<reference>(id);
    const auto result = core_->apply([&](auto& b, auto&) {
      const bool carried = from.rank() == b.self();
      auto taken = carried ? rref_protocol::import_result() : b.acquire(from.rank(), id);
      if (taken && taken->held()) held->hold(core_, id);
      return taken;
    });
    if (!result) return false;
    if (!result->held()) {
      found.failure = core_->why_broken(result->why, id);
      return true;
    }
    handover.target = std::move(held);  // until the request is done, with the message's record
  }
  look(core_, id, found, rref_core::asks::first);
  return true;
}

inline bool rref_service::keep_result(weft::link& from, incoming_message& m,
                                      const rref_protocol::creation& create) {
  auto* outcome = static_cast<kept_outcome*>(m.record().find<result_keeper>());
  if (!outcome) {
    auto fresh = std::make_unique<kept_outcome>(core_, create.id, m.header().function);
    outcome = fresh.get();
    m.record().put<result_keeper>(std::move(fresh));
  }
  const auto result = core_->apply([&](auto& b, auto& o) {
    const auto [value, fresh] = core_->values.try_emplace(create.id);
    auto r = rref_protocol::received::refused;
    try {
      r = b.created(from.rank(), create, o);
    } catch (...) {
      if (fresh) core_->values.erase(value);
      throw;
    }
    if (r == rref_protocol::received::accepted) {
      outcome->owe();
    } else if (fresh) {
      core_->values.erase(value);
    }
    return r;
  });
  return result == rref_protocol::received::accepted;
}

inline expected<void> rref_service::frame(weft::link& from, incoming_message& m) {
  constexpr std::size_t each = rref_protocol::message_bytes;
  const auto payload = m.whole().payload();
  const std::size_t count = payload.size() / each;
  const bool whole =
      payload.size() == count * each && count != 0 && count <= rref_protocol::messages_per_frame;
  std::size_t heeded = 0;
  const auto heed = [&](auto& b, auto& o) {
    for (; heeded < count; ++heeded) {
      const auto what = rref_protocol::decode_message(payload.subspan(heeded * each, each));
      if (!what) return false;
      if (b.frame(from.rank(), *what, o) == rref_protocol::received::refused) return false;
    }
    return true;
  };
  const bool understood = whole && insist([&] { return core_->apply(heed); });
  if (understood) return {};
  return tl::unexpected(error(errc::protocol_error, "a reference message that nobody sends",
                              call_progress::maybe_executed, origin::transport));
}

inline void rref_service::batch_ends() noexcept {
  core_->apply([](auto&, auto&) {}, core::sending::now);
}

inline void rref_service::down(weft::link& peer, const error&) {
  insist([&] { core_->apply([&](auto& b, auto& o) { b.peer_lost(peer.rank(), o); }); });
}

}  // namespace weft::engine
