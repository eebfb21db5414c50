// SPDX-License-Identifier: BSL-1.0
// The holders of each remote reference: sequenced reference listing, without leases yet. A pure
// state machine: each member is one step and appends the work to do to an `outputs`. It knows no
// I/O, clock or thread. The caller serialises the steps and sends messages in the order given.
//
//   sender                     receiver                    owner
//     |--- payload(TRANSFER t) --->|                          |   sender pins until XACK t
//     |                            |--- add(seq) ------------>|   seq > last seen: hold
//     |                            |<-------- added(seq) -----|   receiver is ok
//     |<-- xack(t) ----------------|                          |   pin dropped
//                                  |--- del(seq') ----------->|   no local ref, no pin, ok
//                                  |<-------- deled(seq') ----|   forgotten
//
// * If a receiver already holds the reference, it answers xack at once; the owner gets no message.
// * At the owner a transfer becomes a local reference and is answered at once.
// * From the owner a transfer needs one message: the receiver's add names the transfer.
// * A creator is registered by its CREATE; added answers it. The creator may hand the reference on
//   before. An add, use or transfer that reaches the owner before CREATE waits for it (promised).
// * If the request of a creation never left, a del withdraws it; waiting workers are told "gone".
//
// Kept by construction, as long as messages of one session are neither lost nor forged (delay,
// reorder and repetition of control messages are harmless; CREATE and TRANSFER come exactly once,
// and a use comes before the del that its sender sends later):
//   G1 the owner hears of every deletion     I2 nothing deleted comes back
//   G2 a sender stays registered until its   I4 nothing breaks unless a worker or a creation fails
//      receiver is (I3)                      I7 every value is released once
//   I1 what is ok at a user is alive         I6 all state is bounded by holders and messages
// All this holds within ledger_limits. A reference beyond them fails alone, with an error.
//
// An id is a name, not a capability. Each member of the run may name any reference: the owner
// cannot know which references its users handed on, and members trust each other.
//
// When a worker is lost, its holdings are freed, and its values are owner_died at their users. A
// hand-over that only this worker covered may end as `lost`: an error, never another object.
#pragma once

#include <weft/rref/ledger_owner.hpp>
#include <weft/rref/ledger_sessions.hpp>
#include <weft/rref/ledger_types.hpp>
#include <weft/rref/ledger_user.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::rref_protocol {

/// One per worker. Not thread-safe, not movable. If a step throws std::bad_alloc, do not use it
/// any more.
class ledger {
 public:
  /// Ranks are below `world_size`; ids with other ranks are refused.
  ledger(rank self, rank world_size, ledger_limits limits = {})
      : sessions_(self, world_size), owner_(sessions_, limits), user_(sessions_, limits) {}
  ledger(const ledger&) = delete;
  ledger& operator=(const ledger&) = delete;

  // ---- making references; each starts with one local reference

  /// A value of this worker, pending until value_ready or value_failed.
  [[nodiscard]] rref_id create_local() { return owner_.create_local(); }

  /// Whether `owner` may be asked for one more value. False while the oldest request that has not
  /// left is `creation_window` behind. If `owner` is lost or no worker, it is true, and
  /// `create_remote` returns nothing.
  [[nodiscard]] bool may_create(rank owner) {
    return !sessions_.valid(owner) || owner == sessions_.self() || sessions_.lost(owner) ||
           user_.may_create(owner);
  }
  /// A value that a request makes at `owner`; the returned CREATE is part of that request. Nothing
  /// if `owner` is lost or no worker, or if too many requests wait to be sent (`may_create`). If
  /// `owner` is this worker, the value is pending at once.
  [[nodiscard]] std::optional<creation> create_remote(rank owner) {
    if (!sessions_.valid(owner) || sessions_.lost(owner) || !may_create(owner)) return std::nullopt;
    if (owner == sessions_.self()) return creation{owner_.create_local(), 1};
    return user_.create(owner);
  }

  /// The request with this CREATE was queued on its link, in front of all requests that are queued
  /// later. (If the owner has answered a request, it has left in any case.)
  void creation_sent(const rref_id& id) noexcept {
    if (id.owner != sessions_.self()) user_.creation_sent(id);
  }

  /// The request with this CREATE never left. The reference is broken (creation_failed).
  void creation_dropped(const rref_id& id, outputs& out) {
    if (id.owner == sessions_.self())
      owner_.creation_dropped(id, out);
    else
      user_.creation_dropped(id, answers_, out);
    answer(out);
  }

  /// The request with this CREATE arrived. accepted: the value is pending; always resolve it with
  /// value_ready or value_failed, also if the request fails. Else do not run the request.
  received created(rank from, const creation& what, outputs& out) {
    if (!sessions_.valid(from)) return refuse();
    return owner_.created(from, what, out);
  }

  /// The outcome of a pending value. If no reference to the value is left, this step releases it.
  /// False if the value was not pending.
  bool value_ready(const rref_id& id, outputs& out) {
    return owner_.resolve(id, value_state::ready, out);
  }
  bool value_failed(const rref_id& id, outputs& out) {
    return owner_.resolve(id, value_state::failed, out);
  }

  // ---- local references; only the first and the last matter to other workers

  /// False, without effect, unless a local reference exists.
  bool add_local_ref(const rref_id& id) {
    return id.owner == sessions_.self() ? owner_.add_local(id) : user_.add_local(id);
  }
  bool drop_local_ref(const rref_id& id, outputs& out) {
    return id.owner == sessions_.self() ? owner_.drop_local(id, out)
                                        : user_.drop_local(id, answers_, out);
  }

  // ---- handing over

  /// Pins a reference for a payload to `to`, this worker included. Nothing if there is no local
  /// reference, it is broken, or `to` is lost.
  [[nodiscard]] std::optional<transfer> transfer_out(const rref_id& id, rank to) {
    if (!sessions_.valid(to) || sessions_.lost(to)) return std::nullopt;
    if (!(id.owner == sessions_.self() ? owner_.pin(id) : user_.pin(id))) return std::nullopt;
    const std::uint64_t number = ++transfers_given_;
    transfers_.emplace(number, sent_transfer{id, to});
    return transfer{id, number};
  }

  /// The payload never left: drops its pin. If a payload did leave, tell the ledger nothing: its
  /// receiver's answer or loss drops the pin.
  void transfer_dropped(std::uint64_t number, outputs& out) {
    if (const auto it = transfers_.find(number); it != transfers_.end()) unpin(it, out);
  }

  /// A reference arrived. held(): one local reference was taken. Else none was taken, and the new
  /// reference is broken; `why` has the cause. Nothing: no correct peer sends this.
  [[nodiscard]] std::optional<import_result> transfer_in(rank from, const transfer& what,
                                                         outputs& out) {
    if (!sessions_.valid(from) || !sessions_.valid(what.id) || what.number == 0) {
      ++sessions_.counters.refused;
      return std::nullopt;
    }
    import_result result;
    if (what.id.owner == sessions_.self()) {
      result = owner_.acquire(from, what.id);
      answers_.push_back({from, what});
    } else {
      result = user_.transfer_in(from, what, answers_, out);
    }
    answer(out);
    return result;
  }

  /// At the owner: a request that uses the value arrived. held(): a local reference was taken. It
  /// keeps the value or its error until the request is done; value() says whether to wait.
  [[nodiscard]] std::optional<import_result> acquire(rank from, const rref_id& id) {
    if (!sessions_.valid(from) || !sessions_.valid(id) || id.owner != sessions_.self()) {
      ++sessions_.counters.refused;
      return std::nullopt;
    }
    return owner_.acquire(from, id);
  }

  // ---- the network

  /// A control message arrived on the link to `from`.
  received frame(rank from, const message& m, outputs& out) {
    if (!sessions_.valid(from) || from == sessions_.self() || !sessions_.valid(m.id))
      return refuse();
    const detail::session& peer = sessions_.at(from);
    if (peer.ended || peer.epoch != m.epoch) {
      ++sessions_.counters.stale;
      return received::stale;
    }
    const received result = route(from, m, out);
    answer(out);
    return result;
  }

  /// The session with `gone` has ended for ever. Repeating the call has no effect.
  void peer_lost(rank gone, outputs& out) {
    if (!sessions_.valid(gone) || gone == sessions_.self() || sessions_.lost(gone)) return;
    sessions_.at(gone).ended = true;
    owner_.lost(gone, out);
    user_.lost(gone, answers_, out);
    for (auto it = transfers_.begin(); it != transfers_.end();) {
      const auto here = it++;
      if (here->second.to == gone) unpin(here, out);
    }
    answer(out);
  }

  // ---- observers

  [[nodiscard]] rank self() const noexcept { return sessions_.self(); }
  [[nodiscard]] bool lost(rank peer) const { return sessions_.lost(peer); }

  /// The state of a value of this owner; nothing if the reference is unknown or released.
  [[nodiscard]] std::optional<value_state> value(const rref_id& id) const {
    return owner_.value(id);
  }
  [[nodiscard]] std::optional<owned_view> owned(const rref_id& id) const { return owner_.view(id); }
  [[nodiscard]] std::optional<import_view> imported(const rref_id& id) const {
    return user_.view(id);
  }

  [[nodiscard]] ledger_counters counters() const {
    ledger_counters now = sessions_.counters;
    now.owned = owner_.size();
    now.imports = user_.size();
    now.pins = transfers_.size();
    return now;
  }

  /// Nothing owned, imported, or waiting for an answer: this worker may leave.
  [[nodiscard]] bool idle() const noexcept {
    return owner_.size() == 0 && user_.size() == 0 && transfers_.empty();
  }

  /// One line for each reference and each unanswered hand-over, in the order of their ids.
  [[nodiscard]] std::string describe() const;

 private:
  struct sent_transfer {
    rref_id id;
    rank to = 0;
  };
  using sent_transfers = std::map<std::uint64_t, sent_transfer>;

  received refuse() {
    ++sessions_.counters.refused;
    return received::refused;
  }

  received route(rank from, const message& m, outputs& out);
  received settled_by(rank from, const message& m, outputs& out);

  void unpin(sent_transfers::iterator it, outputs& out) {
    const rref_id id = it->second.id;
    transfers_.erase(it);
    if (id.owner == sessions_.self())
      owner_.unpin(id, out);
    else
      user_.unpin(id, answers_, out);
  }

  /// Tells the senders of settled hand-overs, this worker itself included.
  void answer(outputs& out) {
    for (std::size_t i = 0; i != answers_.size(); ++i) {  // unpinning may add more
      const detail::settled next = answers_[i];
      if (next.sender == sessions_.self()) {
        transfer_dropped(next.what.number, out);
        continue;
      }
      message m;
      m.kind = message_kind::xack;
      m.id = next.what.id;
      m.transfer = next.what.number;
      sessions_.send(next.sender, m, out);
    }
    answers_.clear();
  }

  detail::session_table sessions_;
  detail::owner_table owner_;
  detail::user_table user_;
  sent_transfers transfers_;
  std::uint64_t transfers_given_ = 0;
  std::vector<detail::settled> answers_;
};

}  // namespace weft::rref_protocol

#include <weft/rref/impl/ledger.hpp>
