// SPDX-License-Identifier: BSL-1.0
#pragma once
// The user's half of the ledger: one entry for each reference that lives elsewhere and is used,
// handed on or being released here.
//
//   (none) | releasing --transfer from a third worker, add--> registering --added--> ok
//   (none) --create_remote--> registering        registering --added(gone)--> broken
//   (none) | releasing --transfer from the owner, add(transfer)--> ok
//   ok, no local reference, no pin --del--> releasing --deled--> (none)
//   any --owner lost--> broken, or (none) if nobody here refers to it

#include <weft/rref/ledger_sessions.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstdint>
#include <map>
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
    const rref_id id{owner, sessions_.self(), ++peer.serial};
    entry& made = entries_[id];
    made.local = 1;
    made.sequence = ++peer.sequence;
    return {id, made.sequence};
  }

  void creation_dropped(const rref_id& id, std::vector<settled>& answers, outputs& out) {
    const auto it = entries_.find(id);
    if (id.creator != sessions_.self() || it == entries_.end() ||
        it->second.state != import_state::registering)
      return;
    say(message_kind::del, id, ++sessions_.at(id.owner).sequence, 0, out);
    shatter(id, it->second, cause::creation_failed, answers, out);
    settle(it, out);
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
        it = entries_.try_emplace(id).first;
        it->second.given_by = from;
        ++giver.imports;
      }
      entry& e = it->second;
      e.sequence = ++sessions_.at(id.owner).sequence;
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
      e.state = import_state::ok;
      answer_all(e, answers);
    } else {
      if (e.state != import_state::registering && e.state != import_state::ok) return stale();
      shatter(m.id, e, m.why, answers, out);
    }
    settle(it, out);
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
  bool drop_local(const rref_id& id, outputs& out) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.local == 0) return false;
    --it->second.local;
    settle(it, out);
    return true;
  }

  bool pin(const rref_id& id) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.local == 0 || it->second.state == import_state::broken)
      return false;
    ++it->second.pins;
    return true;
  }
  void unpin(const rref_id& id, outputs& out) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.pins == 0) return;
    --it->second.pins;
    settle(it, out);
  }

  /// `gone` is already marked as ended.
  void lost(rank gone, std::vector<settled>& answers, outputs& out) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto here = it++;
      entry& e = here->second;
      if (here->first.owner != gone || e.state == import_state::broken) continue;
      if (e.state == import_state::releasing)
        erase(here);
      else {
        shatter(here->first, e, cause::owner_died, answers, out);
        settle(here, out);
      }
    }
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

  void shatter(const rref_id& id, entry& e, cause why, std::vector<settled>& answers,
               outputs& out) {
    e.state = import_state::broken;
    e.why = why;
    ++sessions_.counters.broken;
    answer_all(e, answers);
    out.events.push_back({event_kind::broken, id, value_state::promised, why});
  }

  /// Rule 1: del only when nothing here refers to it, every hand-over that this worker sent was
  /// answered, and the owner has confirmed the registration.
  void settle(entries::iterator it, outputs& out) {
    entry& e = it->second;
    if (e.local != 0 || e.pins != 0) return;
    if (e.state == import_state::broken) {
      out.events.push_back({event_kind::forgotten, it->first, value_state::promised, e.why});
      erase(it);
    } else if (e.state == import_state::ok) {
      e.state = import_state::releasing;
      e.sequence = ++sessions_.at(it->first.owner).sequence;
      say(message_kind::del, it->first, e.sequence, 0, out);
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
