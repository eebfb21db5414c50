// SPDX-License-Identifier: BSL-1.0
// The user's half of the ledger: one entry for each reference to a value elsewhere that is used,
// handed on or being released here.
//
//   (none) | releasing --transfer from a third worker, add--> registering --added--> ok
//   (none) --create_remote--> registering        registering --added(gone)--> broken
//   (none) | releasing --transfer from the owner, add(transfer)--> ok
//   ok, no local reference, no pin --del--> releasing --deled--> (none)
//   any --owner lost--> broken, or (none) if nothing here refers to it
#pragma once

#include <weft/rref/ledger_entries.hpp>
#include <weft/rref/ledger_sessions.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::rref_protocol::detail {

class user_table {
 public:
  user_table(session_table& sessions, const ledger_limits& limits)
      : sessions_(sessions), limits_(limits) {}

  /// Whether the next creation may leave before those that have not left yet. If too many were
  /// missing, the owner would refuse it.
  [[nodiscard]] bool may_create(rank owner) {
    session& peer = sessions_.at(owner);
    const std::uint64_t next = peer.serial + 1;
    // One step for each creation once there were as many: what has left is passed over.
    while (next - peer.unsent_from >= limits_.creation_window &&
           !unsent({owner, sessions_.self(), peer.unsent_from})) {
      ++peer.unsent_from;
    }
    return next - peer.unsent_from < limits_.creation_window;
  }

  /// Call it only after `may_create` returned true.
  creation create(rank owner) {
    session& peer = sessions_.at(owner);
    const rref_id id{owner, sessions_.self(), ++peer.serial};
    entry& made = entries_.insert(id).first->second;
    made.local = 1;
    made.unsent = true;
    made.sequence = ++peer.sequence;
    return {id, made.sequence};
  }

  /// Its request is on the link, in front of whatever is created from now on.
  void creation_sent(const rref_id& id) noexcept {
    const auto it = entries_.find(id);
    if (it != entries_.end()) it->second.unsent = false;
  }

  void creation_dropped(const rref_id& id, std::vector<settled>& answers, outputs& out) {
    const auto it = entries_.find(id);
    if (id.creator != sessions_.self() || it == entries_.end() ||
        it->second.state != import_state::registering)
      return;
    it->second.withdrawn = true;
    settle(it, answers, out);
  }

  /// If `what` is in `answers` when this returns, the caller answers it at once.
  import_result transfer_in(rank from, const transfer& what, std::vector<settled>& answers,
                            outputs& out) {
    const rref_id& id = what.id;
    // Nobody can have what this worker has yet to create. Who hands it on may have been lied to.
    if (id.creator == sessions_.self() && id.serial > sessions_.at(id.owner).serial) {
      answers.push_back({from, what});
      return {cause::lost};
    }
    auto it = entries_.find(id);
    session& owner = sessions_.at(id.owner);
    session& giver = sessions_.at(from);
    if (it != entries_.end() && it->second.state == import_state::broken) {
      answers.push_back({from, what});
      return {it->second.why};
    }
    if (sessions_.lost(id.owner)) {
      answers.push_back({from, what});
      return {cause::owner_died};
    }
    if (it == entries_.end() || it->second.state == import_state::releasing) {
      if (from != id.owner && giver.unsettled >= limits_.unsettled_per_peer) {
        answers.push_back({from, what});
        return {cause::too_many_imports};
      }
      if (it == entries_.end()) {
        if (giver.imports >= limits_.imports_per_peer) {
          answers.push_back({from, what});
          return {cause::too_many_imports};
        }
        it = entries_.insert(id).first;
        it->second.given_by = from;
        ++giver.imports;
      }
      entry& e = it->second;
      e.sequence = ++owner.sequence;
      // The owner pins what it hands over until we answer, and our answer is the registration.
      // So nothing has to be waited for. A del may overtake that add: its sequence is higher,
      // the add then only drops the pin.
      e.state = from == id.owner ? import_state::ok : import_state::registering;
      say(message_kind::add, id, e.sequence, from == id.owner ? what.number : 0, out);
      if (from != id.owner) wait(e, giver, {from, what});
    } else if (it->second.state == import_state::registering && from != sessions_.self()) {
      // An owner that never answers its creation could fill this worker with hand-overs of it.
      if (giver.unsettled >= limits_.unsettled_per_peer) {
        answers.push_back({from, what});
        return {cause::too_many_imports};
      }
      wait(it->second, giver, {from, what});
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
    e.unsent = false;  // the owner has seen it
    if (m.why == cause::none) {
      if (e.state != import_state::registering) return stale();
      e.state = import_state::ok;
      answer_all(e, answers);
    } else {
      if (e.state != import_state::registering && e.state != import_state::ok) return stale();
      mark_broken(m.id, e, m.why, answers, out);
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

  bool add_local(const rref_id& id) noexcept { return entries_.add_local(id); }
  bool drop_local(const rref_id& id, std::vector<settled>& answers, outputs& out) {
    return settle_if_there(entries_.drop_local(id), answers, out);
  }
  bool pin(const rref_id& id) {
    return entries_.pin(id, [](const entry& e) { return e.state != import_state::broken; });
  }
  void unpin(const rref_id& id, std::vector<settled>& answers, outputs& out) {
    settle_if_there(entries_.unpin(id), answers, out);
  }

  /// `gone` is already marked as ended.
  void lost(rank gone, std::vector<settled>& answers, outputs& out) {
    entries_.each([&](entries::iterator it) {
      if (it->first.owner == gone) settle(it, answers, out);
    });
  }

  [[nodiscard]] std::optional<import_view> view(const rref_id& id) const {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return std::nullopt;
    return view(it->second);
  }

  template <class Visitor>
  void each(Visitor visit) const {
    entries_.each([&](const rref_id& id, const entry& e) { visit(id, view(e)); });
  }

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct entry : counted_entry {
    import_state state = import_state::registering;
    cause why = cause::none;
    bool unsent = false;     // its CREATE has not left yet
    bool withdrawn = false;  // ... and never will
    std::uint64_t sequence = 0;
    std::optional<rank> given_by;  // none: created by this worker
    std::vector<settled> waiting;
  };
  using entries = entry_table<entry>;

  static import_view view(const entry& e) {
    return {e.state, e.why, e.local, e.pins, e.sequence, e.waiting.size()};
  }

  received stale() {
    ++sessions_.counters.stale;
    return received::stale;
  }

  [[nodiscard]] bool unsent(const rref_id& id) const {
    const auto it = entries_.find(id);
    return it != entries_.end() && it->second.unsent;
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

  static void wait(entry& e, session& giver, const settled& until_registered) {
    e.waiting.push_back(until_registered);
    ++giver.unsettled;
  }
  void answer_all(entry& e, std::vector<settled>& answers) {
    answers.insert(answers.end(), e.waiting.begin(), e.waiting.end());
    for (const settled& each : e.waiting) --sessions_.at(each.sender).unsettled;
    e.waiting.clear();
  }

  void mark_broken(const rref_id& id, entry& e, cause why, std::vector<settled>& answers,
                   outputs& out) {
    e.state = import_state::broken;
    e.why = why;
    ++sessions_.counters.broken;
    answer_all(e, answers);
    out.events.push_back({event_kind::broken, id, value_state::promised, why});
  }

  bool settle_if_there(entries::iterator it, std::vector<settled>& answers, outputs& out) {
    if (it == entries_.end()) return false;
    settle(it, answers, out);
    return true;
  }
  /// Draws the conclusions from what the entry says. Rule 1: del only when nothing here refers to
  /// it, every hand-over that this worker sent was answered, and the owner has confirmed the
  /// registration.
  void settle(entries::iterator it, std::vector<settled>& answers, outputs& out) {
    const rref_id& id = it->first;
    entry& e = it->second;
    if (sessions_.lost(id.owner) && e.state != import_state::broken) {
      if (e.state == import_state::releasing) return erase(it);
      mark_broken(id, e, cause::owner_died, answers, out);
    } else if (e.withdrawn && e.state == import_state::registering) {
      mark_broken(id, e, cause::creation_failed, answers, out);
      say(message_kind::del, id, ++sessions_.at(id.owner).sequence, 0, out);
      e.unsent = false;  // the owner hears of it by this
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
