// SPDX-License-Identifier: BSL-1.0
#pragma once
// Bodies of ledger.hpp: which half gets a message, and the leak report.

#include <weft/rref/ledger.hpp>

#include <string>

namespace weft::rref_protocol {

inline received ledger::route(rank from, const message& m, outputs& out) {
  const bool for_owner = m.kind == message_kind::add || m.kind == message_kind::del;
  const bool from_owner = m.kind == message_kind::added || m.kind == message_kind::deled;
  if (for_owner && m.id.owner != sessions_.self()) return refuse();
  if (from_owner && m.id.owner != from) return refuse();
  switch (m.kind) {
  case message_kind::add: {
    const received result = owner_.add(from, m, out);  // registers before the pin is dropped
    if (m.transfer != 0) settled_by(from, m, out);
    return result;
  }
  case message_kind::del:
    return owner_.del(from, m, out);
  case message_kind::added:
    return user_.added(m, answers_, out);
  case message_kind::deled:
    return user_.deled(m);
  case message_kind::xack:
    return settled_by(from, m, out);
  }
  return refuse();
}

inline received ledger::settled_by(rank from, const message& m, outputs& out) {
  const auto it = transfers_.find(m.transfer);
  if (it == transfers_.end()) {
    ++sessions_.counters.stale;
    return received::stale;
  }
  if (it->second.to != from || it->second.id != m.id) return refuse();
  unpin(it, out);
  return received::accepted;
}

inline std::string ledger::describe() const {
  std::string text;
  owner_.each([&](const rref_id& id, const owned_view& e) {
    text += "owned " + to_string(id) + ": " + std::string(to_string(e.value)) + ", " +
            std::to_string(e.local_refs) + " local, " + std::to_string(e.pins) +
            " in hand-over, held by";
    if (e.holders.empty()) text += " nobody";
    for (const rank user : e.holders) text += ' ' + std::to_string(user);
    text += '\n';
  });
  user_.each([&](const rref_id& id, const import_view& e) {
    text += "imported " + to_string(id) + ": " + std::string(to_string(e.state));
    if (e.why != cause::none) text += " (" + std::string(to_string(e.why)) + ')';
    text += ", " + std::to_string(e.local_refs) + " local, " + std::to_string(e.pins) +
            " in hand-over, " + std::to_string(e.waiting) + " to answer\n";
  });
  for (const auto& [number, sent] : transfers_)
    text += "hand-over " + std::to_string(number) + " of " + to_string(sent.id) + " to " +
            std::to_string(sent.to) + ": unanswered\n";
  return text;
}

}  // namespace weft::rref_protocol
