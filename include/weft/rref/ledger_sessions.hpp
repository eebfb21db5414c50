// SPDX-License-Identifier: BSL-1.0
// A ledger's data about each other worker: whether it is alive, which of its creations were seen,
// and the numbers that this worker gives out for it.
#pragma once

#include <weft/core/detail/sequence_set.hpp>
#include <weft/rref/ledger_types.hpp>

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft::rref_protocol::detail {

struct session {
  std::uint32_t epoch = first_epoch;
  bool ended = false;

  // The peer creates at this owner. CREATEs of one creator may pass each other (two threads encode
  // at once).
  weft::detail::sequence_set<std::uint64_t> created{1};
  std::uint32_t promised = 0;   // entries that this peer named before their CREATE
  std::uint32_t imports = 0;    // entries of this user that this peer gave
  std::uint32_t unsettled = 0;  // its hand-overs that wait for an owner's answer

  // This worker is a user of the peer. One sequence for all references of a session, not one for
  // each: a reference that was released can be forgotten at once, its next registration is newer.
  std::uint64_t sequence = 0;
  std::uint64_t serial = 0;
  std::uint64_t unsent_from = 1;  // the creations before this one have left

  /// All creations up to this one were seen.
  [[nodiscard]] std::uint64_t created_through() const noexcept { return created.next() - 1; }
};

class session_table {
 public:
  session_table(rank self, rank world_size) : self_(self), world_(world_size) {}

  [[nodiscard]] rank self() const noexcept { return self_; }

  [[nodiscard]] bool valid(rank peer) const noexcept { return peer < world_; }
  [[nodiscard]] bool valid(const rref_id& id) const noexcept {
    return valid(id.owner) && valid(id.creator) && id.serial != 0;
  }

  [[nodiscard]] session& at(rank peer) { return peers_[peer]; }

  [[nodiscard]] bool lost(rank peer) const {
    const auto it = peers_.find(peer);
    return it != peers_.end() && it->second.ended;
  }

  /// Queues `what`, unless its addressee is gone.
  void send(rank to, message what, outputs& out) {
    session& peer = at(to);
    if (peer.ended) return;
    what.epoch = peer.epoch;
    out.messages.push_back({to, what});
    ++counters.sent[static_cast<std::size_t>(what.kind)];
  }

  ledger_counters counters;

 private:
  rank self_;
  rank world_;
  std::map<rank, session> peers_;
};

/// A hand-over to answer: tell `sender` that its transfer is settled.
struct settled {
  rank sender = 0;
  transfer what;
};

}  // namespace weft::rref_protocol::detail
