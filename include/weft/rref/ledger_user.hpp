// SPDX-License-Identifier: BSL-1.0
// The user's half of the ledger: one entry for each reference that lives elsewhere and is used,
// handed on or being released here.
//
//   (none) | releasing --transfer from a third worker, add--> registering --added--> ok
//   (none) --create_remote--> registering        registering --added(gone)--> broken
//   (none) | releasing --transfer from the owner, add(transfer)--> ok
//   ok, no local reference, no pin --del--> releasing --deled--> (none)
//   any --owner lost--> broken, or (none) if nobody here refers to it
#pragma once

#include <weft/rref/ledger_sessions.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace weft::rref_protocol::detail {

class user_table {
 public:
  user_table(session_table& sessions, const ledger_limits& limits)
      : sessions_(sessions), limits_(limits) {}

  creation create(rank owner) {
    session& peer = sessions_.at(owner);
    const rref_id id{owner, sessions_.self(), peer.serial + 1};
    entry& made = entries_[id];
    ++peer.serial;  // now that nothing throws: the owner misses none
    made.local = 1;
    made.sequence = ++peer.sequence;
    return {id, made.sequence};
  }

  void creation_dropped(const rref_id& id, std::vector<settled>& answers, outputs& out) {
    const auto it = entries_.find(id);
    if (id.creator != sessions_.self() || it == entries_.end() ||
        it->second.state != import_state::registering)
      return;
    it->second.withdrawn = true;
    settle(it, answers, out);
  }

  /// The caller answers `what` at once if it is in `answers` when this returns.
  import_result transfer_in(rank from, const transfer& what, std::vector<settled>& answers,
                            outputs& out) {
    const rref_id& id = what.id;
    // Nobody can have what this worker has yet to create. Who hands it on may have been lied to.
    if (id.creator == sessions_.self() && id.serial > sessions_.at(id.owner).serial) {
      answers.push_back({from, what});
      return {cause::lost};
    }
    auto it = entries_.find(id);
    // What may throw comes first, but for a new entry.
    make_room(answers, 1);
    make_room(out.messages, 1);
    session& owner = sessions_.at(id.owner);
    if (it != entries_.end() && from != id.owner) make_room(it->second.waiting, 1);
    if (it != entries_.end() && it->second.state == import_state::broken) {
      answers.push_back({from, what});
      return {it->second.why};
    }
    if (sessions_.lost(id.owner)) {
      answers.push_back({from, what});
      return {cause::owner_died};
    }
    if (it == entries_.end() || it->second.state == import_state::releasing) {
      if (it == entries_.end()) {
        session& giver = sessions_.at(from);
        if (giver.imports >= limits_.imports_per_peer) {
          answers.push_back({from, what});
          return {cause::too_many_imports};
        }
        entry fresh;
        if (from != id.owner) fresh.waiting.reserve(1);
        fresh.given_by = from;
        it = entries_.emplace(id, std::move(fresh)).first;
        ++giver.imports;
      }
      entry& e = it->second;
      e.sequence = ++owner.sequence;
      // The owner pins what it hands over until we answer, and our answer is the registration.
      // So nothing has to be waited for. A del may overtake that add: its sequence is higher,
      // the add then only drops the pin.
      e.state = from == id.owner ? import_state::ok : import_state::registering;
      say(message_kind::add, id, e.sequence, from == id.owner ? what.number : 0, out);
      if (from != id.owner) e.waiting.push_back({from, what});
    } else if (it->second.state == import_state::registering && from != sessions_.self()) {
      it->second.waiting.push_back({from, what});
    } else {
      answers.push_back({from, what});
    }
    ++it->second.local;
    return {};
  }

  received added(const message& m, std::vector<settled>& answers, outputs& out) {
    const auto it = entries_.find(m.id);
    if (it == entries_.end() || it->second.sequence != m.sequence) return stale();
    entry& e = it->second;
    if (m.why == cause::none) {
      if (e.state != import_state::registering) return stale();
      make_room(answers, e.waiting.size());
      e.state = import_state::ok;
      answer_all(e, answers);
    } else {
      if (e.state != import_state::registering && e.state != import_state::ok) return stale();
      shatter(m.id, e, m.why, answers, out);
    }
    settle(it, answers, out);
    return received::accepted;
  }

  received deled(const message& m) {
    const auto it = entries_.find(m.id);
    if (it == entries_.end() || it->second.sequence != m.sequence ||
        it->second.state != import_state::releasing)
      return stale();
    erase(it);
    return received::accepted;
  }

  bool add_local(const rref_id& id) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.local == 0) return false;
    ++it->second.local;
    return true;
  }
  /// Succeeds also if there is no memory.
  bool drop_local(const rref_id& id, std::vector<settled>& answers, outputs& out) noexcept {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.local == 0) return false;
    --it->second.local;
    settle(it, answers, out);
    return true;
  }

  bool pin(const rref_id& id) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.local == 0 || it->second.state == import_state::broken)
      return false;
    ++it->second.pins;
    return true;
  }
  /// Succeeds also if there is no memory.
  void unpin(const rref_id& id, std::vector<settled>& answers, outputs& out) noexcept {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.pins == 0) return;
    --it->second.pins;
    settle(it, answers, out);
  }

  /// `gone` is already marked as ended.
  void lost(rank gone, std::vector<settled>& answers, outputs& out) noexcept {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto here = it++;
      if (here->first.owner == gone) settle(here, answers, out);
    }
  }
  /// What there was no memory for.
  void sweep(std::vector<settled>& answers, outputs& out) noexcept {
    for (auto it = entries_.begin(); it != entries_.end();) settle(it++, answers, out);
  }

  [[nodiscard]] std::optional<import_view> view(const rref_id& id) const {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return std::nullopt;
    return view(it->second);
  }

  template <class Visitor>
  void each(Visitor visit) const {
    for (const auto& [id, e] : entries_) visit(id, view(e));
  }

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct entry {
    import_state state = import_state::registering;
    cause why = cause::none;
    std::uint64_t local = 0;
    std::uint64_t pins = 0;
    std::uint64_t sequence = 0;
    bool withdrawn = false;        // its CREATE never left
    std::optional<rank> given_by;  // none: created by this worker
    std::vector<settled> waiting;
  };
  using entries = std::map<rref_id, entry>;

  static import_view view(const entry& e) {
    return {e.state, e.why, e.local, e.pins, e.sequence, e.waiting.size()};
  }

  received stale() {
    ++sessions_.counters.stale;
    return received::stale;
  }

  void say(message_kind kind, const rref_id& id, std::uint64_t sequence, std::uint64_t number,
           outputs& out) {
    message m;
    m.kind = kind;
    m.id = id;
    m.sequence = sequence;
    m.transfer = number;
    sessions_.send(id.owner, m, out);
  }

  static void answer_all(entry& e, std::vector<settled>& answers) {
    answers.insert(answers.end(), e.waiting.begin(), e.waiting.end());
    e.waiting.clear();
  }

  /// Nothing happened if it throws.
  void shatter(const rref_id& id, entry& e, cause why, std::vector<settled>& answers,
               outputs& out) {
    make_room(answers, e.waiting.size());
    make_room(out.events, 1);
    e.state = import_state::broken;
    e.why = why;
    ++sessions_.counters.broken;
    answer_all(e, answers);
    out.events.push_back({event_kind::broken, id, value_state::promised, why});
  }

  /// Draws the conclusions from what the entry says, now or, if memory lacks, in the next `sweep`.
  void settle(entries::iterator it, std::vector<settled>& answers, outputs& out) noexcept {
    try {
      conclude(it, answers, out);
    } catch (const std::bad_alloc&) {
      sessions_.behind = true;
    }
  }
  /// Rule 1: del only when nothing here refers to it, every hand-over that this worker sent was
  /// answered, and the owner has confirmed the registration.
  void conclude(entries::iterator it, std::vector<settled>& answers, outputs& out) {
    const rref_id& id = it->first;
    entry& e = it->second;
    if (sessions_.lost(id.owner) && e.state != import_state::broken) {
      if (e.state == import_state::releasing) return erase(it);
      shatter(id, e, cause::owner_died, answers, out);
    } else if (e.withdrawn && e.state == import_state::registering) {
      make_room(out.messages, 1);
      shatter(id, e, cause::creation_failed, answers, out);
      say(message_kind::del, id, ++sessions_.at(id.owner).sequence, 0, out);
    }
    if (e.local != 0 || e.pins != 0) return;
    if (e.state == import_state::broken) {
      out.events.push_back({event_kind::forgotten, id, value_state::promised, e.why});
      erase(it);
    } else if (e.state == import_state::ok) {
      const std::uint64_t sequence = ++sessions_.at(id.owner).sequence;
      say(message_kind::del, id, sequence, 0, out);
      e.state = import_state::releasing;
      e.sequence = sequence;
    }
  }

  void erase(entries::iterator it) {
    if (it->second.given_by) --sessions_.at(*it->second.given_by).imports;
    entries_.erase(it);
  }

  session_table& sessions_;
  ledger_limits limits_;
  entries entries_;
};

}  // namespace weft::rref_protocol::detail
