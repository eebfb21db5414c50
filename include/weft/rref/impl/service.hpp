// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rref/service.hpp.
#pragma once

#include <weft/rref/service.hpp>

#include <asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>

namespace weft::detail {

/// State behind the lock. It outlives the service as long as handles do.
template <class T>
class rref_core final : public reference_keeper {
 public:
  explicit rref_core(worker& w) : me(&w), books(w.rank(), w.world_size()) {}

  struct value {
    std::shared_ptr<void> object;
    const void* type = nullptr;
    error failure;
    // For the object or the failure, in the order of their coming. None if one of them is there.
    std::map<std::uint64_t, ref<object_waiter>> waiting;
    [[nodiscard]] bool made() const noexcept { return object || failure; }
    /// Whom to tell, once the lock is free.
    [[nodiscard]] std::vector<ref<object_waiter>> told() {
      std::vector<ref<object_waiter>> all;
      for (auto& [place, who] : waiting) all.push_back(std::move(who));
      waiting.clear();
      return all;
    }
  };

  /// Runs `step(books, outputs)` under the lock, queues what it sends, then does the rest.
  template <class Step>
  auto run(Step&& step) {
    std::unique_lock lock(mutex);
    const auto leave = [&] {
      after todo = settle();
      const worker_use here(*this);
      lock.unlock();
      if (!here.who) return;
      for (const std::uint32_t rank : todo.flush) here.who->to(rank).flush();
      for (const auto& w : todo.tell) w->object_there();
    };
    if constexpr (std::is_void_v<decltype(step(books, out))>) {
      step(books, out);
      leave();
    } else {
      auto result = step(books, out);
      leave();
      return result;
    }
  }

  /// The same object, destroyed on the worker's thread whoever drops it last: a call that runs it
  /// on the pool may outlive the last reference.
  [[nodiscard]] static std::shared_ptr<void> at_home(const ref<rref_core>& core,
                                                     std::shared_ptr<void> object) {
    void* const address = object.get();
    return {address, [core, object = std::move(object)](void*) mutable {
              const std::lock_guard lock(core->mutex);
              if (!core->me) return;  // the deleter destroys it when the lock is free again
              asio::post(core->me->context(),
                         [object = std::move(object)]() mutable { object.reset(); });
            }};
  }

  /// What there is of the value, as `function` sees it.
  void look(const rref_id& id, std::uint64_t function, call_target& target) {
    const std::lock_guard lock(mutex);
    const value& v = values[id];
    target.object = v.object;
    target.type = v.type;
    target.failure = v.failure;
    view_for(function, target);
  }

  void drop(const rref_id& id) noexcept override {
    run([&](auto& b, auto& o) { b.drop_local_ref(id, o); });
  }

  [[nodiscard]] static error why_broken(rref_protocol::cause why, const rref_id& id) {
    using rref_protocol::cause;
    const std::string text = "reference " + to_string(id) + ": ";
    switch (why) {
    case cause::none:
      return {};
    case cause::owner_died:
      return error(errc::rref_owner_died, text + "the worker that held the object is gone");
    case cause::creation_failed:
      return error(errc::rref_lost, text + "the request that was to make it was never sent");
    case cause::creator_died:
      return error(errc::rref_lost, text + "its creator died before the request arrived");
    case cause::too_many:
      return error(errc::resource_exhausted,
                   text + "its owner keeps no more references whose request has not arrived");
    case cause::too_many_imports:
      return error(errc::resource_exhausted,
                   text + "this worker holds as many references as one peer may give it");
    case cause::lost:
      break;
    }
    return error(errc::rref_lost, text + "the object was freed while the reference travelled");
  }

  worker* me;                           // null once the worker is gone
  std::atomic<std::uint32_t> users{0};  // threads that use it without the lock
  mutable std::mutex mutex;
  rref_protocol::ledger books;
  rref_protocol::outputs out;
  std::map<rref_id, value> values;
  std::map<rref_id, error> never_made;  // why, for references whose request was never sent
  std::uint64_t places = 0;             // given to waiters, from 1
  std::uint64_t frames = 0;             // control frames queued

 private:
  struct after {
    std::vector<std::uint32_t> flush;
    std::vector<std::shared_ptr<void>> drop;
    std::vector<ref<object_waiter>> tell;
  };
  /// The worker, if it is there, stays as long as this; made under the lock.
  struct worker_use {
    explicit worker_use(rref_core& c) : who(c.me), users(c.users) { users.fetch_add(1); }
    worker_use(const worker_use&) = delete;
    worker_use& operator=(const worker_use&) = delete;
    ~worker_use() {
      if (users.fetch_sub(1) == 1) users.notify_all();
    }
    worker* const who;
    std::atomic<std::uint32_t>& users;
  };

  static void tell(value& v, after& todo) {
    for (auto& w : v.told()) todo.tell.push_back(std::move(w));
  }

  /// Under the lock.
  after settle() {
    after todo;
    if (me && !out.messages.empty()) queue_messages(todo.flush);
    for (const rref_protocol::event& e : out.events) {
      if (e.kind == rref_protocol::event_kind::forgotten) never_made.erase(e.id);
      const auto at = values.find(e.id);
      if (at == values.end()) continue;
      if (e.kind == rref_protocol::event_kind::failed) {
        if (!at->second.failure) at->second.failure = why_broken(e.why, e.id);
        tell(at->second, todo);
      } else if (e.kind == rref_protocol::event_kind::released) {
        todo.drop.push_back(std::move(at->second.object));
        tell(at->second, todo);
        values.erase(at);
      }
    }
    out.events.clear();
    if (!me) out.messages.clear();
    return todo;
  }

  /// Under the lock: all that goes to one peer, in its order, in as few frames as may be. What
  /// there is no memory for goes with the next step.
  void queue_messages(std::vector<std::uint32_t>& flush) {
    auto& messages = out.messages;
    const std::size_t most =
        std::clamp<std::size_t>(me->settings().bounds.payload / rref_protocol::message_bytes, 1,
                                rref_protocol::messages_per_frame);
    std::size_t queued = 0;
    try {
      group_by_peer(messages);
      while (queued != messages.size()) {
        const std::uint32_t to = messages[queued].to;
        weft::message m(me->settings().bounds);
        std::size_t next = queued;
        for (; next != messages.size() && next - queued < most && messages[next].to == to; ++next) {
          std::byte bytes[rref_protocol::message_bytes];
          rref_protocol::encode(messages[next].what, bytes);
          m.payload().raw(bytes, sizeof bytes);
        }
        frame_header header;
        header.kind = frame_kind::rref;
        if (flush.empty() || flush.back() != to) flush.push_back(to);
        if (me->to(to).append(std::move(m).finish(header))) ++frames;
        queued = next;
      }
    } catch (const std::bad_alloc&) {
    }
    messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(queued));
  }

  using messages_to = std::vector<rref_protocol::outputs::addressed>;
  /// Those of one peer one behind another, in their order.
  static void group_by_peer(messages_to& messages) {
    const auto other = [](const auto& a, const auto& b) { return a.to != b.to; };
    if (std::adjacent_find(messages.begin(), messages.end(), other) == messages.end()) return;
    std::map<std::uint32_t, std::size_t> place;
    for (const auto& m : messages) ++place[m.to];
    std::size_t first = 0;
    for (auto& [to, count] : place) first += std::exchange(count, first);
    messages_to grouped(messages.size());
    for (const auto& m : messages) grouped[place[m.to]++] = m;
    messages.swap(grouped);
  }
};

/// A value of this worker, as a request for `function` waits for it. The request holds a local
/// reference, so that it is not released meanwhile.
template <class T>
class unmade_value final : public unmade_object {
 public:
  unmade_value(ref<rref_core<T>> core, const rref_id& id, std::uint64_t function)
      : core_(std::move(core)), id_(id), function_(function) {}

  bool enter(const ref<object_waiter>& who) override {
    const std::lock_guard lock(core_->mutex);
    auto& v = core_->values[id_];
    if (v.made()) return false;
    v.waiting.emplace(place(*who) = ++core_->places, who);
    return true;
  }
  void leave(const object_waiter& who) noexcept override {
    ref<object_waiter> left;  // dies without the lock
    const std::lock_guard lock(core_->mutex);
    const auto at = core_->values.find(id_);
    if (at == core_->values.end()) return;
    const auto there = at->second.waiting.find(place(who));
    if (there == at->second.waiting.end()) return;
    left = std::move(there->second);
    at->second.waiting.erase(there);
  }
  void look(call_target& out) override { core_->look(id_, function_, out); }

 private:
  const ref<rref_core<T>> core_;
  const rref_id id_;
  const std::uint64_t function_;
};

template <class T>
live_rref_service<T>::live_rref_service(worker& me) : core_(make_ref<core>(me)) {}

template <class T>
void live_rref_service<T>::detach() noexcept {
  std::map<rref_id, typename core::value> values;
  {
    const std::lock_guard lock(core_->mutex);
    core_->me = nullptr;
    values.swap(core_->values);
  }
  for (std::uint32_t n; (n = core_->users.load()) != 0;) core_->users.wait(n);
}

template <class T>
ref<reference> live_rref_service<T>::share(std::shared_ptr<void> value, const void* type) {
  std::shared_ptr<void> object = core::at_home(core_, std::move(value));
  const rref_id id = core_->run([&](auto& b, auto& o) {
    const rref_id fresh = b.create_local();
    core_->values[fresh] = {std::move(object), type, {}, {}};
    b.value_ready(fresh, o);
    return fresh;
  });
  return make_ref<reference>(core_, id);
}

template <class T>
std::optional<rref_service::created> live_rref_service<T>::create(std::uint32_t owner) {
  const auto what = core_->run([&](auto& b, auto&) {
    auto made = b.create_remote(owner);
    if (made && made->id.owner == b.self()) core_->values[made->id];
    return made;
  });
  if (!what) return std::nullopt;
  return created{make_ref<reference>(core_, what->id), *what};
}

template <class T>
void live_rref_service<T>::never_sent(const rref_id& id, const error& why) {
  core_->run([&](auto& b, auto& o) {
    if (id.owner != b.self()) {
      const auto view = b.imported(id);
      const bool unmade = view && view->state == rref_protocol::import_state::registering;
      if (unmade) core_->never_made[id] = why;
    } else if (const auto at = core_->values.find(id);
               at != core_->values.end() && !at->second.made()) {
      at->second.failure = why;
    }
    b.creation_dropped(id, o);
  });
}

template <class T>
error live_rref_service<T>::state_of(const reference& r) const {
  if (r.broken()) return r.broken();
  const std::lock_guard lock(core_->mutex);
  if (r.id().owner == core_->books.self()) {
    const auto at = core_->values.find(r.id());
    return at == core_->values.end() ? error() : at->second.failure;
  }
  const auto view = core_->books.imported(r.id());
  if (view && view->state == rref_protocol::import_state::broken) {
    const auto why = core_->never_made.find(r.id());
    return why != core_->never_made.end() ? why->second : core::why_broken(view->why, r.id());
  }
  return {};
}

template <class T>
std::shared_ptr<void> live_rref_service<T>::local(const reference& r, const void* type) const {
  if (r.broken()) throw rpc_error(r.broken());
  const std::lock_guard lock(core_->mutex);
  if (r.id().owner != core_->books.self()) {
    throw rpc_error(errc::rref_not_owner, "reference " + to_string(r.id()) +
                                              " is held by worker '" +
                                              core_->me->members().members[r.id().owner].name +
                                              "'; local() is for the owner, use to_here()");
  }
  const auto at = core_->values.find(r.id());
  if (at == core_->values.end()) {
    throw rpc_error(errc::rref_lost, "reference " + to_string(r.id()) + " holds nothing");
  }
  if (at->second.failure) throw rpc_error(at->second.failure);
  if (!at->second.object) {
    throw rpc_error(errc::invalid_argument,
                    "the object of reference " + to_string(r.id()) +
                        " is still being made; use to_here() or call(), which wait");
  }
  if (at->second.type != type) {
    throw rpc_error(errc::bad_arguments,
                    "reference " + to_string(r.id()) + " holds an object of another type");
  }
  return at->second.object;
}

template <class T>
rref_protocol::ledger_counters live_rref_service<T>::counters() const {
  const std::lock_guard lock(core_->mutex);
  auto now = core_->books.counters();
  now.frames = core_->frames;
  for (const auto& [id, v] : core_->values) now.waiting += v.waiting.size();
  return now;
}
template <class T>
std::string live_rref_service<T>::describe() const {
  const std::lock_guard lock(core_->mutex);
  return core_->books.describe();
}
template <class T>
bool live_rref_service<T>::idle() const {
  const std::lock_guard lock(core_->mutex);
  return core_->books.idle();
}

// ── sending ──

template <class T>
void live_rref_service<T>::attach(link& to, const frame_header&, message& m) {
  auto* handover = m.record().find<rref_handover>();
  if (!handover) return;
  bytes section;
  const auto put = [&section](const void* data, std::size_t size) { section.append(data, size); };
  const std::uint8_t flags =
      static_cast<std::uint8_t>((handover->target ? 1 : 0) | (handover->create ? 2 : 0));
  put(&flags, 1);
  if (handover->target) {
    const error why = state_of(*handover->target);
    if (why && handover->target->id().owner != to.self().rank()) throw rpc_error(why);
    const rref_id& id = handover->target->id();
    put(&id.owner, 4), put(&id.creator, 4), put(&id.serial, 8);
  }
  if (handover->create) {
    std::byte out[rref_protocol::creation_bytes];
    rref_protocol::encode(*handover->create, out);
    put(out, sizeof out);
  }
  const auto& given = handover->references;
  if (given.size() > rref_protocol::references_per_message) {
    throw rpc_error(errc::message_too_large,
                    "the message hands over " + std::to_string(given.size()) + " references; " +
                        std::to_string(rref_protocol::references_per_message) + " fit");
  }
  const auto count = static_cast<std::uint32_t>(given.size());
  put(&count, 4);
  handover->pinned.reserve(given.size());
  const bool all = core_->run([&](auto& b, auto&) {
    for (const auto& reference : given) {
      const auto what =
          reference->broken() ? std::nullopt : b.transfer_out(reference->id(), to.rank());
      if (!what) return false;
      handover->pinned.push_back(what->number);
      std::byte out[rref_protocol::transfer_bytes];
      rref_protocol::encode(*what, out);
      put(out, sizeof out);
    }
    return true;
  });
  if (!all) {
    const error why = state_of(*given[handover->pinned.size()]);
    throw rpc_error(why ? why : to.reason());
  }
  m.section(section_kind::rref, section.view());
}

template <class T>
void live_rref_service<T>::sent(link&, parts& record) {
  if (auto* handover = record.find<rref_handover>()) handover->pinned.clear();
}

template <class T>
void live_rref_service<T>::dropped(link&, parts& record) {
  auto* handover = record.find<rref_handover>();
  if (!handover) return;
  const auto numbers = std::exchange(handover->pinned, {});
  core_->run([&](auto& b, auto& o) {
    for (const std::uint64_t number : numbers) b.transfer_dropped(number, o);
  });
}

// ── receiving ──

template <class T>
expected<void> live_rref_service<T>::arrive(link& from, incoming_message& m) {
  const auto section = m.section(section_kind::rref);
  if (!section) return {};
  auto bad = [](const char* what) {
    return tl::unexpected(error(errc::protocol_error, std::string("an rref section ") + what,
                                execution::maybe_executed, origin::transport));
  };
  std::span<const std::byte> in = *section;
  const auto take = [&in](std::size_t size) {
    const auto out = in.first(size);
    in = in.subspan(size);
    return out.data();
  };
  if (in.size() < 5) return bad("that is too short");
  const auto flags = static_cast<std::uint8_t>(*take(1));
  const bool request = m.header().kind == frame_kind::request;
  if (flags > 3 || (flags != 0 && !request)) return bad("with unknown flags");
  std::optional<rref_id> target;
  if ((flags & 1) != 0) {
    if (in.size() < 20) return bad("that is too short");
    const std::byte* p = take(16);
    target =
        rref_id{load<std::uint32_t>(p), load<std::uint32_t>(p + 4), load<std::uint64_t>(p + 8)};
  }
  std::optional<rref_protocol::creation> create;
  if ((flags & 2) != 0) {
    if (in.size() < rref_protocol::creation_bytes + 4) return bad("that is too short");
    const std::byte* p = take(rref_protocol::creation_bytes);
    create = rref_protocol::decode_creation({p, rref_protocol::creation_bytes});
    if (!create) return bad("with a damaged creation");
  }
  if (in.size() < 4) return bad("that is too short");
  const auto count = load<std::uint32_t>(take(4));
  if (in.size() != std::size_t{count} * rref_protocol::transfer_bytes) {
    return bad("whose count does not fit its length");
  }
  if (count > rref_protocol::references_per_message) return bad("with too many references");
  std::vector<rref_protocol::transfer> given;
  given.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto what = rref_protocol::decode_transfer(
        {take(rref_protocol::transfer_bytes), rref_protocol::transfer_bytes});
    if (!what) return bad("with a damaged transfer");
    given.push_back(*what);
  }
  rref_handover& handover = m.record().get<rref_handover>();
  handover.here = &from.self();
  // The handles are made before the step, so that what it takes always has an owner.
  handover.references.reserve(count);
  for (const auto& what : given) handover.references.push_back(make_ref<reference>(what.id));
  const bool possible = core_->run([&](auto& b, auto& o) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto result = b.transfer_in(from.rank(), given[i], o);
      if (!result) return false;
      if (result->held()) {
        handover.references[i]->hold(core_);
      } else {
        handover.references[i]->break_with(core::why_broken(result->why, given[i].id));
      }
    }
    return true;
  });
  if (!possible) return bad("with an impossible transfer");
  if (create) {
    const auto result = core_->run([&](auto& b, auto& o) {
      const auto r = b.created(from.rank(), *create, o);
      if (r == rref_protocol::received::accepted) core_->values[create->id];
      return r;
    });
    if (result != rref_protocol::received::accepted) return bad("with an impossible creation");
    auto& keeper = m.record().get<result_keeper>();
    const rref_id id = create->id;
    const auto settle = [c = core_, id](std::shared_ptr<void> object, const void* type,
                                        error failure) {
      std::vector<ref<object_waiter>> told;
      c->run([&](auto& b, auto& o) {
        const bool failed = static_cast<bool>(failure);
        if (auto at = c->values.find(id); at != c->values.end()) {
          at->second.object = std::move(object);
          at->second.type = type;
          at->second.failure = std::move(failure);
          told = at->second.told();
        }
        failed ? b.value_failed(id, o) : b.value_ready(id, o);
      });
      for (const auto& w : told) w->object_there();
    };
    keeper.keep = [c = core_, settle](std::shared_ptr<void> object, const void* type) {
      settle(core::at_home(c, std::move(object)), type, {});
    };
    keeper.fail = [settle](error why) { settle(nullptr, nullptr, std::move(why)); };
  }
  if (target) {
    const auto result = core_->run([&](auto& b, auto&) { return b.acquire(from.rank(), *target); });
    if (!result) return bad("with an impossible target");
    auto& found = m.record().get<call_target>();
    if (!result->held()) {
      found.failure = core::why_broken(result->why, *target);
      return {};
    }
    // Kept until the request is done, with the message's record.
    handover.target = make_ref<reference>(core_, *target);
    core_->look(*target, m.header().function, found);
    if (!found.object && !found.failure) {
      found.unmade = make_ref<unmade_value<T>>(core_, *target, m.header().function);
    }
  }
  return {};
}

template <class T>
expected<void> live_rref_service<T>::frame(link& from, incoming_message& m) {
  constexpr std::size_t each = rref_protocol::message_bytes;
  const auto payload = m.whole().payload();
  const std::size_t count = payload.size() / each;
  const bool whole =
      payload.size() == count * each && count != 0 && count <= rref_protocol::messages_per_frame;
  const bool understood = whole && core_->run([&](auto& b, auto& o) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto what = rref_protocol::decode_message(payload.subspan(i * each, each));
      if (!what) return false;
      if (b.frame(from.rank(), *what, o) == rref_protocol::received::refused) return false;
    }
    return true;
  });
  if (understood) return {};
  return tl::unexpected(error(errc::protocol_error, "a reference message that nobody sends",
                              execution::maybe_executed, origin::transport));
}

template <class T>
void live_rref_service<T>::down(link& peer, const error&) {
  core_->run([&](auto& b, auto& o) { b.peer_lost(peer.rank(), o); });
}

}  // namespace weft::detail
