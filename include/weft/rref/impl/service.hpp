// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rref/service.hpp.
#pragma once

#include <weft/rref/service.hpp>

#include <asio/post.hpp>

#include <atomic>

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
    std::vector<std::function<void()>> waiting;  // for the object or the failure
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
      for (auto& f : todo.run) f();
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
      return error(errc::resource_exhausted, text + "its owner keeps no more promises");
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

 private:
  struct after {
    std::vector<std::uint32_t> flush;
    std::vector<std::shared_ptr<void>> drop;
    std::vector<std::function<void()>> run;
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

  /// Under the lock.
  after settle() {
    after todo;
    for (const auto& [to, what] : out.messages) {
      if (!me) break;
      weft::message m(me->settings().bounds);
      std::byte bytes[rref_protocol::message_bytes];
      rref_protocol::encode(what, bytes);
      m.payload().raw(bytes, sizeof bytes);
      frame_header header;
      header.kind = frame_kind::rref;
      if (me->to(to).append(std::move(m).finish(header))) todo.flush.push_back(to);
    }
    for (const rref_protocol::event& e : out.events) {
      const auto at = values.find(e.id);
      if (at == values.end()) continue;
      if (e.kind == rref_protocol::event_kind::failed) {
        at->second.failure = why_broken(e.why, e.id);
        for (auto& w : at->second.waiting) todo.run.push_back(std::move(w));
        at->second.waiting.clear();
      } else if (e.kind == rref_protocol::event_kind::released) {
        todo.drop.push_back(std::move(at->second.object));
        for (auto& w : at->second.waiting) todo.run.push_back(std::move(w));
        values.erase(at);
      }
    }
    out.clear();
    return todo;
  }
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
void live_rref_service<T>::never_sent(const rref_id& id) {
  core_->run([&](auto& b, auto& o) { b.creation_dropped(id, o); });
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
    return core::why_broken(view->why, r.id());
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
  return core_->books.counters();
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
  const auto count = static_cast<std::uint32_t>(handover->references.size());
  put(&count, 4);
  for (const auto& reference : handover->references) {
    const auto what = core_->run([&](auto& b, auto&) {
      return reference->broken() ? std::nullopt : b.transfer_out(reference->id(), to.rank());
    });
    if (!what) {
      const error why = state_of(*reference);
      throw rpc_error(why ? why : to.reason());
    }
    handover->pinned.push_back(what->number);
    std::byte out[rref_protocol::transfer_bytes];
    rref_protocol::encode(*what, out);
    put(out, sizeof out);
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
  rref_handover& handover = m.record().get<rref_handover>();
  handover.here = &from.self();
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto what = rref_protocol::decode_transfer(
        {take(rref_protocol::transfer_bytes), rref_protocol::transfer_bytes});
    if (!what) return bad("with a damaged transfer");
    const auto result =
        core_->run([&](auto& b, auto& o) { return b.transfer_in(from.rank(), *what, o); });
    if (!result) return bad("with an impossible transfer");
    handover.references.push_back(
        result->held() ? make_ref<reference>(core_, what->id)
                       : make_ref<reference>(what->id, core::why_broken(result->why, what->id)));
  }
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
      std::vector<std::function<void()>> waiting;
      c->run([&](auto& b, auto& o) {
        const bool failed = static_cast<bool>(failure);
        if (auto at = c->values.find(id); at != c->values.end()) {
          at->second.object = std::move(object);
          at->second.type = type;
          at->second.failure = std::move(failure);
          waiting.swap(at->second.waiting);
        }
        failed ? b.value_failed(id, o) : b.value_ready(id, o);
      });
      for (auto& w : waiting) w();
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
    const auto look = [c = core_, id = *target, function = m.header().function](call_target& out) {
      const std::lock_guard lock(c->mutex);
      auto& v = c->values[id];
      out.object = v.object;
      out.type = v.type;
      out.failure = v.failure;
      view_for(function, out);
      return v.object || v.failure;
    };
    if (!look(found)) {
      found.wait = [c = core_, id = *target, look, &found](std::function<void()> resume) {
        auto then = [look, &found, resume = std::move(resume)] {
          look(found);
          resume();
        };
        {
          const std::lock_guard lock(c->mutex);
          auto& v = c->values[id];
          if (!v.object && !v.failure) {
            v.waiting.push_back(std::move(then));
            return;
          }
        }
        then();
      };
    }
  }
  return {};
}

template <class T>
expected<void> live_rref_service<T>::frame(link& from, incoming_message& m) {
  const auto what = rref_protocol::decode_message(m.whole().payload());
  const bool exact = m.whole().payload().size() == rref_protocol::message_bytes;
  if (what && exact) {
    const auto result =
        core_->run([&](auto& b, auto& o) { return b.frame(from.rank(), *what, o); });
    if (result != rref_protocol::received::refused) return {};
  }
  return tl::unexpected(error(errc::protocol_error, "a reference message that nobody sends",
                              execution::maybe_executed, origin::transport));
}

template <class T>
void live_rref_service<T>::down(link& peer, const error&) {
  core_->run([&](auto& b, auto& o) { b.peer_lost(peer.rank(), o); });
}

}  // namespace weft::detail
