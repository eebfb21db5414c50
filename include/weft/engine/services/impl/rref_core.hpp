// SPDX-License-Identifier: BSL-1.0
// State of the reference service behind its lock, and what refers to it from elsewhere.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/engine/serving/not_made.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/rref/detail/forwarding_address.hpp>
#include <weft/rref/ledger.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/service.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>

namespace weft::engine {

/// The ledger as its service keeps it: where it only says no, a user hears why.
class reference_ledger final : public rref_protocol::ledger {
 public:
  using ledger::ledger;
  /// As a ledger's. Throws rpc_error, resource_exhausted, where too many requests that are to make
  /// something at `owner` wait behind one that has not been sent.
  [[nodiscard]] std::optional<rref_protocol::creation> create_remote(std::uint32_t owner) {
    if (!may_create(owner)) {
      throw rpc_error(errc::resource_exhausted,
                      std::to_string(rref_protocol::ledger_limits().creation_window) +
                          " make/remote requests to worker " + std::to_string(owner) +
                          " wait behind an unsent one");
    }
    return ledger::create_remote(owner);
  }
};

/// State behind the lock. It outlives the service as long as handles do.
class rref_core final : public reference_keeper {
 public:
  explicit rref_core(engine::worker& w) : me(&w), ledger(w.rank(), w.world_size()) {}

  struct value {
    std::shared_ptr<void> object;
    type_id type;
    error failure;
    std::uint64_t function = 0;  // that failed to make it, while nobody has been told
    // For the object or the failure, in the order of their coming. None if one of them is there.
    std::map<std::uint64_t, intrusive_ptr<object_waiter>> waiting;
    bool telling = false;  // those that waited: who comes meanwhile is told behind them
    [[nodiscard]] bool made() const noexcept { return object || failure; }
    [[nodiscard]] bool open() const noexcept { return made() && !telling; }
  };

  /// When the messages of a step are queued: in one frame at the end of the batch, if one is under
  /// way; or now, with all that was held back, in front of a request that is about to be queued.
  enum class sending : std::uint8_t { with_the_batch, now };

  /// Runs `step(ledger, outputs)` under the lock, queues what it sends, then does the rest. Nobody
  /// waits for what it sends: it need not be written before other frames are. A step is whole: for
  /// want of memory the process ends.
  template <class Step>
  auto apply(Step&& step, sending how = sending::with_the_batch) try {
    effects todo;  // dies without the lock, whatever is thrown
    std::unique_lock lock(mutex);
    if constexpr (std::is_void_v<decltype(step(ledger, out))>) {
      step(ledger, out);
      settle(waits(how), todo);
      leave(lock, todo);
    } else {
      auto result = step(ledger, out);
      settle(waits(how), todo);
      leave(lock, todo);
      return result;
    }
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }

  /// The same object, destroyed on the worker's thread whoever drops it last: a call that runs it
  /// on the pool may outlive the last reference.
  [[nodiscard]] static std::shared_ptr<void> at_home(const intrusive_ptr<rref_core>& core,
                                                     std::shared_ptr<void> object) {
    void* const address = object.get();
    return {address, [core, last = std::move(object)](void*) mutable {
              const std::lock_guard lock(core->mutex);
              if (!core->me) return;  // the deleter destroys it when the lock is free again
              post_or_die(core->me->context(), [o = std::move(last)]() mutable { o.reset(); });
            }};
  }

  /// Who looks for a value: a request that has just come, and stays behind those that are being
  /// told of it, or whoever wants what there is by now.
  enum class asks : std::uint8_t { first, at_once };
  /// What there is of the value, or of the one that it leads to on this worker; returns which.
  rref_id look(const rref_id& id, call_target& target, asks which) {
    const std::lock_guard lock(mutex);
    const rref_id end = end_of(id, which);
    if (end != id && !values.contains(end) && !ledger.value(end)) {
      target.failure = why_broken(rref_protocol::cause::lost, end);
      return end;
    }
    value& v = values[end];
    v.function = 0;
    if (which == asks::first && !v.open()) return end;
    target.object = v.object;
    target.type = v.type;
    target.failure = v.failure;
    if (const auto* on = forward_target(v.object.get(), v.type);
        on && on->to->id().owner == ledger.self()) {
      target.object = nullptr;
      target.failure =
          error(errc::invalid_argument,
                "reference " + to_string(id) + " leads to another reference more than " +
                    std::to_string(rref_protocol::most_forwards) +
                    " times in a row; do they form a circle?",
                call_progress::not_executed);
    }
    return end;
  }
  /// Under the lock: of results that are references to values of this worker the last, or the first
  /// that is not there. It leads to none of this worker, unless there are more than are followed.
  [[nodiscard]] rref_id end_of(rref_id id, asks which) const {
    for (std::uint8_t steps = 0; steps < rref_protocol::most_forwards; ++steps) {
      const auto* on = local_lead(id);
      if (!on || (which == asks::first && values.find(id)->second.telling)) break;
      id = on->to->id();
    }
    return id;
  }
  /// Under the lock: where the value leads to on this worker, if it does.
  [[nodiscard]] const forwarding_address* local_lead(const rref_id& id) const {
    const auto at = values.find(id);
    if (at == values.end()) return nullptr;
    const auto* on = forward_target(at->second.object.get(), at->second.type);
    return on && on->to->id().owner == ledger.self() ? on : nullptr;
  }
  /// Under the lock, for a value that was just made: those who wait for it wait for what it leads
  /// to, if that is not there, in front of whoever comes.
  void
  wait_where_it_leads(const rref_id& id,
                      std::map<std::uint64_t, intrusive_ptr<object_waiter>>& waiting) noexcept {
    const rref_id end = end_of(id, asks::first);
    const auto at = values.find(end);
    if (end == id || at == values.end() || at->second.open()) return;
    while (!waiting.empty()) {
      auto one = waiting.extract(waiting.begin());
      unmade_object::place(*one.mapped()) = one.key() = ++places;
      at->second.waiting.insert(std::move(one));
    }
  }

  void drop(const rref_id& id) noexcept override try {
    effects todo;
    std::unique_lock lock(mutex);
    ledger.drop_local_ref(id, out);
    settle(waits(sending::with_the_batch), todo);  // more of them may follow before it ends
    leave(lock, todo);
  } catch (const std::bad_alloc&) {
    out_of_memory();
  }

  /// Under the lock, or while the worker stays.
  [[nodiscard]] error why_broken(rref_protocol::cause why, const rref_id& id) const {
    using rref_protocol::cause;
    const auto as = [&id](errc code, const char* text) {
      return error(code, "reference " + to_string(id) + ": " + text);
    };
    switch (why) {
    case cause::none:
      return {};
    case cause::owner_died:
      // Its name, or whoever was called with the reference would be taken for the lost one.
      return as(errc::rref_owner_died, "the worker that owned the object is gone")
          .with([&](error_detail& d) {
            if (!me) return;
            const auto& owner = me->members().members[id.owner];
            d.peer = owner.name;
            d.incarnation = owner.incarnation.low;
          });
    case cause::creation_failed:
      return as(errc::rref_lost, "the request to make its object was never sent");
    case cause::creator_died:
      return as(errc::rref_lost, "its creator died before the request arrived");
    case cause::too_many:
      return as(errc::resource_exhausted,
                "its owner already keeps too many references whose requests have not arrived");
    case cause::too_many_imports:
      return as(errc::resource_exhausted, "this worker cannot hold more references from one peer");
    case cause::lost:
      break;
    }
    return as(errc::rref_lost, "the object was freed while the reference travelled");
  }

  /// What failed to make an object that nobody asked for.
  struct unmet_failure {
    std::uint64_t function;
    std::uint32_t creator;
    error why;
    void tell(engine::worker& owner) const noexcept {
      owner.creation_failed(find_function(function) ? function : 0, creator, why);
    }
  };

  engine::worker* me;                   // null once the worker is gone
  std::atomic<std::uint32_t> users{0};  // threads that use it without the lock
  mutable std::mutex mutex;
  reference_ledger ledger;
  rref_protocol::outputs out;
  std::map<rref_id, value> values;
  std::map<rref_id, error> never_made;  // why, for references whose request was never sent
  std::uint64_t places = 0;             // given to waiters, from 1
  std::uint64_t frames = 0;             // control frames queued

 private:
  struct effects {
    std::vector<std::uint32_t> flush;  // each once
    std::vector<std::shared_ptr<void>> drop;
    std::vector<intrusive_ptr<object_waiter>> tell;
    std::vector<unmet_failure> unmet;
  };
  /// The worker, if it is there, stays as long as this; made under the lock.
  struct worker_use {
    explicit worker_use(rref_core& c) : who(c.me), users(c.users) { users.fetch_add(1); }
    worker_use(const worker_use&) = delete;
    worker_use& operator=(const worker_use&) = delete;
    ~worker_use() {
      if (users.fetch_sub(1) == 1) users.notify_all();
    }
    engine::worker* const who;
    std::atomic<std::uint32_t>& users;
  };

  /// Under the lock: whether what there is to send stays, until the batch of this thread ends.
  [[nodiscard]] bool waits(sending how) noexcept {
    return how == sending::with_the_batch && has_room() && me->hold();
  }
  [[nodiscard]] bool has_room() const noexcept {
    return me && !out.messages.empty() && out.messages.size() < rref_protocol::messages_per_frame;
  }

  /// Without the lock, which it gives up: the rest of what a step wants done.
  void leave(std::unique_lock<std::mutex>& lock, effects& todo) {
    if (todo.flush.empty() && todo.tell.empty() && todo.unmet.empty()) return lock.unlock();
    const worker_use here(*this);
    lock.unlock();
    if (!here.who) return;
    for (const std::uint32_t rank : todo.flush) here.who->link_to(rank).flush_late();
    for (auto& w : todo.tell) object_waiter::tell(std::move(w));
    for (const auto& u : todo.unmet) u.tell(*here.who);
  }

  /// Under the lock.
  void settle(bool wait, effects& todo) {
    if (!me) out.messages.clear();
    if (!wait && !out.messages.empty()) queue_messages(todo.flush);
    for (const rref_protocol::event& e : out.events) heed(e, todo);
    out.events.clear();
  }

  /// Under the lock.
  void heed(const rref_protocol::event& e, effects& todo) {
    using rref_protocol::event_kind;
    if (e.kind == event_kind::forgotten) never_made.erase(e.id);
    if (e.kind == event_kind::failed) {
      value& v = values[e.id];  // for who asks for it later, too
      if (!v.failure) v.failure = why_broken(e.why, e.id);
      return tell_waiting(v, todo);
    }
    const auto at = values.find(e.id);
    if (e.kind != event_kind::released || at == values.end()) return;
    if (ledger.value(e.id)) return;  // it was only promised, and has been named again in this step
    value& v = at->second;
    tell_waiting(v, todo);
    if (v.function != 0) todo.unmet.push_back({v.function, e.id.creator, v.failure});
    todo.drop.push_back(std::move(v.object));
    values.erase(at);
  }
  static void tell_waiting(value& v, effects& todo) {
    for (auto& [place, w] : v.waiting) todo.tell.push_back(std::move(w));
    v.waiting.clear();
  }

  /// Under the lock: all that goes to one peer, in its order, in as few frames as may be.
  void queue_messages(std::vector<std::uint32_t>& flush) {
    auto& messages = out.messages;
    const std::size_t most =
        std::clamp<std::size_t>(me->settings().bounds.payload / rref_protocol::message_bytes, 1,
                                rref_protocol::messages_per_frame);
    group_by_peer(messages);
    for (std::size_t next = 0; next != messages.size();) {
      const std::size_t first = next;
      const std::uint32_t to = messages[first].to;
      weft::message m(me->settings().bounds);
      std::uint64_t caused = 0;
      for (; next != messages.size() && next - first < most && messages[next].to == to; ++next) {
        std::byte bytes[rref_protocol::message_bytes];
        rref_protocol::encode(messages[next].what, bytes);
        m.payload().raw(bytes, sizeof bytes);
        // All but what a user here says by itself, as it drops a reference.
        if (messages[next].what.kind != rref_protocol::message_kind::del) caused += sizeof bytes;
      }
      frame_header header;
      header.kind = frame_kind::rref;
      if (flush.empty() || flush.back() != to) flush.push_back(to);
      frame f = std::move(m).finish(header);
      f.caused = caused > 0 ? caused + header_size : 0;
      if (me->link_to(to).append(std::move(f))) ++frames;
    }
    messages.clear();
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

/// What becomes of a result that stays here. A request that ends without an outcome (its link was
/// closed, the pool was stopped) has failed: nobody waits for it in vain.
struct kept_outcome final : result_keeper {
  kept_outcome(intrusive_ptr<rref_core> core, const rref_id& id, std::uint64_t function)
      : core_(std::move(core)), id_(id), function_(function) {}
  kept_outcome(const kept_outcome&) = delete;
  kept_outcome& operator=(const kept_outcome&) = delete;
  ~kept_outcome() override {
    if (settled_) return;
    fail(error(errc::cancelled, "the request ended", call_progress::not_executed));
  }

  void keep(std::shared_ptr<void> object, type_id type) override {
    settle(or_die([&] { return rref_core::at_home(core_, std::move(object)); }), type, {});
  }
  void fail(const error& why) noexcept override {
    const function_entry* const f = find_function(function_);
    settle(nullptr, {}, not_made(why, f ? f->name : std::string_view()));
  }
  void settle(std::shared_ptr<void> object, type_id type, error failure) noexcept {
    std::map<std::uint64_t, intrusive_ptr<object_waiter>> told;
    core_->apply([&](auto& b, auto& o) {
      const bool failed = static_cast<bool>(failure);
      if (auto at = core_->values.find(id_); at != core_->values.end()) {
        told.swap(at->second.waiting);
        at->second.object = std::move(object);
        at->second.type = type;
        at->second.failure = std::move(failure);
        core_->wait_where_it_leads(id_, told);
        at->second.telling = !told.empty();
        if (failed) at->second.function = function_;
      }
      settled_ = true;
      failed ? b.value_failed(id_, o) : b.value_ready(id_, o);
    });
    while (!told.empty()) {
      for (auto& [place, w] : told) object_waiter::tell(std::move(w));
      told.clear();
      const std::lock_guard lock(core_->mutex);
      const auto at = core_->values.find(id_);
      if (at == core_->values.end()) return;
      told.swap(at->second.waiting);
      at->second.telling = !told.empty();
    }
  }

  const intrusive_ptr<rref_core> core_;
  const rref_id id_;
  const std::uint64_t function_;
  bool settled_ = false;
};

}  // namespace weft::engine
