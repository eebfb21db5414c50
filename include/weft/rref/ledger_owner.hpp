// SPDX-License-Identifier: BSL-1.0
// The owner's half of the ledger: one entry for each value that lives here, with its holders.
//
//   (unknown) --named before its CREATE--> promised --CREATE--> pending --value--> ready | failed
//   (unknown) --CREATE | create_local--> pending          promised --creator lost--> failed
//   any but pending, with no local reference, no pin and no holder --> released, never again known
//   (a promised one without any registration may be named again)
#pragma once

#include <weft/rref/ledger_entries.hpp>
#include <weft/rref/ledger_sessions.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::rref_protocol::detail {

class owner_table {
 public:
  owner_table(session_table& sessions, const ledger_limits& limits)
      : sessions_(sessions), limits_(limits) {}

  rref_id create_local() {
    const rank self = sessions_.self();
    const rref_id id{self, self, ++sessions_.at(self).serial};
    entry& made = entries_.insert(id).first->second;
    made.value = value_state::pending;
    made.local = 1;
    ++sessions_.counters.created;
    return id;
  }

  received created(rank from, const creation& what, outputs& out) {
    const rref_id& id = what.id;
    if (id.owner != sessions_.self() || id.creator != from || id.serial == 0) return refuse();
    session& peer = sessions_.at(from);
    if (from == sessions_.self())  // create_remote towards oneself already made the entry
      return entries_.contains(id) ? received::accepted : refuse();
    if (what.sequence == 0 || id.serial > peer.created_through() + limits_.creation_window)
      return refuse();
    if (peer.ended || peer.created.contains(id.serial)) return stale();
    peer.created.insert(id.serial);
    entry& made = entries_.insert(id).first->second;
    unreserve(made);
    made.value = value_state::pending;
    ++sessions_.counters.created;
    hold(made, from, what.sequence);
    registration& mine = made.rows[from];
    mine.waits = mine.last == what.sequence;
    for (auto& [user, row] : made.rows) {
      if (!row.waits) continue;
      row.waits = false;
      answer(user, id, row.last, cause::none, out);
    }
    return received::accepted;
  }

  bool resolve(const rref_id& id, value_state how, outputs& out) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.value != value_state::pending) return false;
    it->second.value = how;
    settle(it, out);
    return true;
  }

  /// The request of a value that this worker makes for itself was never sent.
  void creation_dropped(const rref_id& id, outputs& out) {
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second.value != value_state::pending) return;
    it->second.unsent = true;
    settle(it, out);
  }

  /// A local reference on behalf of `from`: a use, or a hand-over that came home.
  import_result acquire(rank from, const rref_id& id) {
    auto it = entries_.find(id);
    if (it == entries_.end()) {
      const cause why = reserve(from, id, it);
      if (why != cause::none) return {why};
    }
    ++it->second.local;
    return {};
  }

  bool add_local(const rref_id& id) noexcept { return entries_.add_local(id); }
  bool drop_local(const rref_id& id, outputs& out) {
    return settle_if_there(entries_.drop_local(id), out);
  }
  bool pin(const rref_id& id) {
    return entries_.pin(id, [](const entry&) { return true; });
  }
  void unpin(const rref_id& id, outputs& out) { settle_if_there(entries_.unpin(id), out); }

  /// add: registers `from`, or remembers to answer once the CREATE is here.
  received add(rank from, const message& m, outputs& out) {
    auto it = entries_.find(m.id);
    if (it == entries_.end()) {
      const cause why = reserve(from, m.id, it);
      if (why != cause::none) {
        answer(from, m.id, m.sequence, why, out);
        return received::accepted;
      }
    }
    entry& e = it->second;
    registration& mine = e.rows[from];
    if (m.sequence < mine.last || (m.sequence == mine.last && !mine.held)) return stale();
    const bool repeated = m.sequence == mine.last;
    if (!repeated) hold(e, from, m.sequence);
    // An add that answers our own hand-over needs no answer: our pin covered its sender until now.
    if (m.transfer != 0) return repeated ? stale() : received::accepted;
    if (e.value == value_state::promised)
      mine.waits = true;
    else
      answer(from, m.id, m.sequence, cause::none, out);
    return received::accepted;
  }

  /// del: always answered, whatever is known of the reference.
  received del(rank from, const message& m, outputs& out) {
    const rref_id id = m.id;
    const auto it = entries_.find(id);
    message answered;
    answered.kind = message_kind::deled;
    answered.id = id;
    answered.sequence = m.sequence;
    session& peer = sessions_.at(from);
    const bool withdrawn = id.creator == from && !peer.created.contains(id.serial);
    if (withdrawn && id.serial > peer.created_through() + limits_.creation_window) return refuse();
    if (withdrawn) peer.created.insert(id.serial);  // its CREATE never comes
    sessions_.send(from, answered, out);
    if (it == entries_.end()) return withdrawn ? received::accepted : stale();
    entry& e = it->second;
    const auto known = e.rows.find(from);
    const bool newer = known == e.rows.end() || m.sequence > known->second.last;
    if (newer) unhold(e, from, m.sequence);
    if (withdrawn && e.value == value_state::promised) fail(id, e, cause::creation_failed, out);
    settle(it, out);
    return newer || withdrawn ? received::accepted : stale();
  }

  /// `gone` is already marked as ended.
  void lost(rank gone, outputs& out) {
    entries_.each([&](entries::iterator here) {
      entry& e = here->second;
      const auto known = e.rows.find(gone);
      if (known != e.rows.end()) {
        if (known->second.held) forget_holder(e);
        e.rows.erase(known);
      }
      settle(here, out);
    });
  }

  [[nodiscard]] std::optional<value_state> value(const rref_id& id) const {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return std::nullopt;
    return it->second.value;
  }

  [[nodiscard]] std::optional<owned_view> view(const rref_id& id) const {
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
  struct registration {
    std::uint64_t last = 0;  // highest sequence seen; kept after del, so that a late add is known
    bool held = false;
    bool waits = false;  // to be answered when the CREATE is here
  };
  struct entry : counted_entry {
    value_state value = value_state::promised;
    std::uint64_t held = 0;
    bool unsent = false;  // the request that was to make it
    std::optional<rank> promised_by;
    std::map<rank, registration> rows;
  };
  using entries = entry_table<entry>;

  static owned_view view(const entry& e) {
    owned_view seen{e.value, e.local, e.pins, {}, e.rows.size()};
    for (const auto& [user, row] : e.rows)
      if (row.held) seen.holders.push_back(user);
    return seen;
  }

  received stale() {
    ++sessions_.counters.stale;
    return received::stale;
  }
  received refuse() {
    ++sessions_.counters.refused;
    return received::refused;
  }

  void answer(rank to, const rref_id& id, std::uint64_t sequence, cause why, outputs& out) {
    message m;
    m.kind = message_kind::added;
    m.why = why;
    m.id = id;
    m.sequence = sequence;
    sessions_.send(to, m, out);
  }

  /// Makes room for a reference whose CREATE may still come, on the account of `from`.
  cause reserve(rank from, const rref_id& id, entries::iterator& it) {
    if (id.creator == sessions_.self()) return cause::lost;
    session& creator = sessions_.at(id.creator);
    if (creator.ended && !creator.created.contains(id.serial)) return cause::creator_died;
    if (creator.created.contains(id.serial)) return cause::lost;
    session& payer = sessions_.at(from);
    if (id.serial > creator.created_through() + limits_.creation_window ||
        payer.promised >= limits_.promised_per_peer)
      return cause::too_many;
    it = entries_.insert(id).first;
    it->second.promised_by = from;
    ++payer.promised;
    ++sessions_.counters.promised;
    return cause::none;
  }

  void unreserve(entry& e) {
    if (!e.promised_by) return;
    --sessions_.at(*e.promised_by).promised;
    --sessions_.counters.promised;
    e.promised_by.reset();
  }

  void hold(entry& e, rank user, std::uint64_t sequence) {
    registration& r = e.rows[user];
    if (sequence <= r.last) return;
    r.last = sequence;
    if (r.held) return;
    r.held = true;
    ++e.held;
    ++sessions_.counters.holders;
  }
  void unhold(entry& e, rank user, std::uint64_t sequence) {
    registration& r = e.rows[user];
    r.last = sequence;
    r.waits = false;
    if (!r.held) return;
    r.held = false;
    forget_holder(e);
  }
  void forget_holder(entry& e) {
    --e.held;
    --sessions_.counters.holders;
  }

  /// The CREATE of a promised entry never comes: those that wait for it are told that it is gone,
  /// local references and holders that got it from us keep an entry that says why.
  void fail(const rref_id& id, entry& e, cause why, outputs& out) {
    unreserve(e);
    e.value = value_state::failed;
    ++sessions_.counters.created;
    for (auto& [user, row] : e.rows) {
      if (!row.waits) continue;
      answer(user, id, row.last, why, out);
      row.waits = false;
      row.held = false;  // the row stays: a repeated add must not register again
      forget_holder(e);
    }
    out.events.push_back({event_kind::failed, id, e.value, why});
  }

  bool settle_if_there(entries::iterator it, outputs& out) {
    if (it == entries_.end()) return false;
    settle(it, out);
    return true;
  }
  /// Draws the conclusions from what the entry says.
  void settle(entries::iterator it, outputs& out) {
    const rref_id& id = it->first;
    entry& e = it->second;
    if (e.unsent && e.value == value_state::pending) {
      out.events.push_back({event_kind::failed, id, value_state::failed, cause::creation_failed});
      e.value = value_state::failed;
    } else if (e.value == value_state::promised && sessions_.lost(id.creator)) {
      fail(id, e, cause::creator_died, out);
    }
    if (e.value == value_state::pending || e.local != 0 || e.pins != 0 || e.held != 0) return;
    // Who registered and left before the CREATE is remembered until then: a repeated add is late.
    if (e.value == value_state::promised && !e.rows.empty()) return;
    out.events.push_back({event_kind::released, id, e.value, cause::none});
    unreserve(e);
    if (e.value != value_state::promised) ++sessions_.counters.released;
    entries_.erase(it);
  }

  session_table& sessions_;
  ledger_limits limits_;
  entries entries_;
};

}  // namespace weft::rref_protocol::detail
