// SPDX-License-Identifier: BSL-1.0
// Who holds which remote reference: sequenced reference listing, without leases yet. A pure state
// machine: every member is one step, what it wants done is appended to an `outputs`. It knows no
// I/O, clock or thread; the caller serialises the steps and sends messages in the order given.
//
//   sender                     receiver                    owner
//     |--- payload(TRANSFER t) --->|                          |   sender pins until XACK t
//     |                            |--- add(seq) ------------>|   seq > last seen: hold
//     |                            |<-------- added(seq) -----|   receiver is ok
//     |<-- xack(t) ----------------|                          |   pin dropped
//                                  |--- del(seq') ----------->|   no local ref, no pin, ok
//                                  |<-------- deled(seq') ----|   forgotten
//
// * A receiver that already holds the reference answers xack at once: the owner hears nothing.
// * At the owner a transfer becomes a local reference and is answered at once.
// * From the owner a transfer needs one message: the receiver's add names the transfer.
// * A creator is registered by its CREATE, answered by added. It may hand the reference on before
//   that; an add, use or transfer that reaches the owner before CREATE waits with it (promised).
// * A creation whose request never left is withdrawn by a del; those who wait are told "gone".
//
// Kept by construction, as long as messages of one session are neither lost nor forged (delay,
// reorder and repetition of control messages are harmless; CREATE and TRANSFER come exactly once,
// and a use comes before the del that its sender sends later):
//   G1 the owner hears of every deletion     I2 nothing deleted comes back
//   G2 a sender stays registered until its   I4 nothing breaks unless a worker or a creation fails
//      receiver is (I3)                      I7 every value is released once
//   I1 what is ok at a user is alive         I6 all state is bounded by holders and messages
// Within ledger_limits: what is over them is told so, and nothing else suffers.
//
// An id is a name, not a capability. Whoever is a member of the run may name any reference: the
// owner cannot know what its users handed on among themselves, and members trust each other.
//
// When a worker is lost its holdings are freed, its values are owner_died at their users, and a
// hand-over that only it covered may end as `lost`: an error, never another object.
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

/// One per worker. Not thread-safe, not movable. After a step that threw std::bad_alloc it is no
/// longer of use.
class ledger {
 public:
  /// Ranks are below `world_size`; ids that name others are refused.
  ledger(rank self, rank world_size, ledger_limits limits = {})
      : sessions_(self, world_size), owner_(sessions_, limits), user_(sessions_, limits) {}
  ledger(const ledger&) = delete;
  ledger& operator=(const ledger&) = delete;

  // ---- making references; each starts with one local reference

  /// A value of this worker, pending until value_ready or value_failed.
  [[nodiscard]] rref_id create_local() { return owner_.create_local(); }

  /// Whether `owner` may be asked for one more value: false while the oldest request that has not
  /// left is `creation_window` behind. Of one that is lost or no worker, `create_remote` tells.
  [[nodiscard]] bool may_create(rank owner) {
    return !sessions_.valid(owner) || owner == sessions_.self() || sessions_.lost(owner) ||
           user_.may_create(owner);
  }
  /// A value that a request makes at `owner`; the result rides inside that request. Nothing if
  /// `owner` is lost or no worker, or if too many wait to be sent (`may_create`). Towards oneself
  /// the value is pending at once.
  [[nodiscard]] std::optional<creation> create_remote(rank owner) {
    if (!sessions_.valid(owner) || sessions_.lost(owner) || !may_create(owner)) return std::nullopt;
    if (owner == sessions_.self()) return creation{owner_.create_local(), 1};
    return user_.create(owner);
  }

  /// The request with this CREATE was queued on its link, in front of all that are queued later.
  /// One whose owner has answered has left in any case.
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

  /// The request with this CREATE arrived. accepted: the value is pending, resolve it with
  /// value_ready or value_failed, whatever becomes of the request. Else do not run it.
  received created(rank from, const creation& what, outputs& out) {
    if (!sessions_.valid(from)) return refuse();
    return owner_.created(from, what, out);
  }

  /// The outcome of a pending value; it is released in this step if nobody refers to it. False if
  /// the value was not pending.
  bool value_ready(const rref_id& id, outputs& out) {
    return owner_.resolve(id, value_state::ready, out);
  }
  bool value_failed(const rref_id& id, outputs& out) {
    return owner_.resolve(id, value_state::failed, out);
  }

  // ---- local references; only the first and the last matter to others

  /// False, and no effect, unless a local reference exists.
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

  /// The payload never left: its pin is dropped. One that did leave is unpinned by its receiver's
  /// answer or loss; there is nothing to tell the ledger.
  void transfer_dropped(std::uint64_t number, outputs& out) {
    if (const auto it = transfers_.find(number); it != transfers_.end()) unpin(it, out);
  }

  /// A reference arrived. held(): one local reference was taken. Otherwise none was, and the
  /// reference is born broken for `why`. Nothing: no correct peer sends this.
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

  /// At the owner: a request that uses the value arrived. held(): a local reference was taken,
  /// which keeps value or error until the request is done; value() says whether to wait.
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

  /// Somebody whose CREATE was named before it came: this worker should see to it that it meets
  /// them. They may have lost it before they had met it, and then nobody else would tell it so.
  [[nodiscard]] std::optional<rank> take_awaited() noexcept { return sessions_.take_awaited(); }

  /// The session with `gone` ended, for ever. Repeating it does nothing.
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

  /// What this owner has; nothing if the reference is unknown or released.
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
