// SPDX-License-Identifier: BSL-1.0
// The types of the reference-counting protocol: identities, messages, events, limits, counters.
// Plain data; see ledger.hpp for the rules and ledger_wire.hpp for the bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Identifies one remote reference in a run; no id is used twice. `serial` counts from 1 for each
/// pair (creator, owner). The creator is the owner itself (a shared value), or the worker that
/// asked the owner to make the value.
struct rref_id {
  std::uint32_t owner = 0;
  std::uint32_t creator = 0;
  std::uint64_t serial = 0;

  friend auto operator<=>(const rref_id&, const rref_id&) = default;
};

/// "0.2.17": owner, creator, serial.
[[nodiscard]] inline std::string to_string(const rref_id& id) {
  return std::to_string(id.owner) + '.' + std::to_string(id.creator) + '.' +
         std::to_string(id.serial);
}

}  // namespace weft

template <>
struct std::hash<weft::rref_id> {
  std::size_t operator()(const weft::rref_id& id) const noexcept {
    const std::uint64_t workers = (std::uint64_t{id.owner} << 32) | id.creator;
    return static_cast<std::size_t>((workers ^ (id.serial * 0x9e3779b97f4a7c15u)) *
                                    0xff51afd7ed558ccdu);
  }
};

namespace weft::rref_protocol {

/// A worker, as long as it lives. In this version a lost worker never returns under its rank. The
/// epoch in every message allows a later version to let it return.
using rank = std::uint32_t;

/// Epoch of every session until leases exist.
inline constexpr std::uint32_t first_epoch = 1;

/// TRANSFER: a part of each payload that hands a reference over. The sender gives the `number`.
struct transfer {
  rref_id id;
  std::uint64_t number = 0;
  friend bool operator==(const transfer&, const transfer&) = default;
};

/// CREATE: a part of the request that makes the value. It also registers the creator as a holder.
struct creation {
  rref_id id;
  std::uint64_t sequence = 0;
  friend bool operator==(const creation&, const creation&) = default;
};

/// Why a reference cannot be used.
enum class cause : std::uint8_t {
  none,             ///< it can be used
  lost,             ///< the owner no longer has it: its last holder died during a hand-over
  owner_died,       ///< the owner's session ended
  creation_failed,  ///< the request that was to make the value never left its creator
  creator_died,     ///< the creator's session ended before its request reached the owner
  too_many,         ///< the owner keeps no more references whose CREATE it has not seen
  too_many_imports  ///< one peer gave this worker too many; never on the wire
};

enum class message_kind : std::uint8_t {
  add,    ///< user to owner: I hold it. `transfer` != 0: this also answers your hand-over
  del,    ///< user to owner: I no longer hold it. Also: I never sent the CREATE
  added,  ///< owner to user: answer to add or CREATE; `why` is none, or says why it is gone
  deled,  ///< owner to user: answer to del
  xack,   ///< receiver to sender: hand-over `transfer` is settled, drop its pin
};
inline constexpr std::size_t message_kinds = 5;

/// One control message. `sequence` is 0 in xack, `transfer` is 0 in all but add and xack.
struct message {
  message_kind kind = message_kind::add;
  cause why = cause::none;
  std::uint32_t epoch = first_epoch;
  rref_id id;
  std::uint64_t sequence = 0;
  std::uint64_t transfer = 0;
  friend bool operator==(const message&, const message&) = default;
};

/// The owner's state of a value.
enum class value_state : std::uint8_t {
  promised,  ///< a worker named it, its CREATE is still in flight
  pending,   ///< being made
  ready,
  failed,  ///< making it failed; each use fails with that error
};

/// A user's state of a reference. Without an entry it has none.
enum class import_state : std::uint8_t {
  registering,  ///< add or CREATE is in flight; it can be called and handed on
  ok,
  releasing,  ///< del is in flight
  broken,
};

enum class event_kind : std::uint8_t {
  released,  ///< at the owner: the entry is gone; destroy its value or error (`value` says which)
  failed,    ///< at the owner: a value never comes (`why`); uses that wait end now
  broken,    ///< at a user: this import can no longer be used (`why`)
  forgotten  ///< at a user: nothing here refers to a broken import any more
};

/// For each created reference, `released` with a value other than promised comes exactly once.
struct event {
  event_kind kind = event_kind::released;
  rref_id id;
  value_state value = value_state::promised;
  cause why = cause::none;
  friend bool operator==(const event&, const event&) = default;
};

/// The work that a step gives to the shell: send `messages` in this order, then act on `events`,
/// outside the lock. Steps append; the shell clears.
struct outputs {
  struct addressed {
    rank to = 0;
    message what;
  };
  std::vector<addressed> messages;
  std::vector<event> events;

  void clear() noexcept {
    messages.clear();
    events.clear();
  }
};

/// The result for a message or request of a peer.
enum class received : std::uint8_t {
  accepted,
  stale,    ///< late or repeated: no effect, no fault
  refused,  ///< no correct peer sends this; close the link
};

/// The result for an arriving reference, or for a use of one.
struct import_result {
  cause why = cause::none;  ///< none: one local reference was taken; drop it by drop_local_ref
  [[nodiscard]] bool held() const noexcept { return why == cause::none; }
};

struct ledger_limits {
  /// How far a creator's serial may be ahead of the oldest missing serial. At the owner, "missing"
  /// means that its CREATE was not seen; at the creator, that its request has not left.
  std::uint64_t creation_window = 65536;
  /// References that one peer may name before their CREATE is seen. A creator may have as many in
  /// flight, so none breaks because it was handed on before its CREATE arrived.
  std::uint32_t promised_per_peer = 65536;
  /// References that one peer gave and that are still held.
  std::uint32_t imports_per_peer = 1u << 20;
  /// Hand-overs of one peer that wait for the owner's answer.
  std::uint32_t unsettled_per_peer = 1u << 20;
};

/// Gauges are values of now; the others count since the start.
struct ledger_counters {
  std::uint64_t owned = 0;     ///< gauge: entries at this owner, promised ones included
  std::uint64_t promised = 0;  ///< gauge
  std::uint64_t holders = 0;   ///< gauge: (reference, user) pairs registered here
  std::uint64_t imports = 0;   ///< gauge: references of other owners, any state
  std::uint64_t pins = 0;      ///< gauge: hand-overs that wait for an answer
  std::uint64_t created = 0;   ///< values made here, failed ones included
  std::uint64_t released = 0;  ///< ... and released
  std::uint64_t broken = 0;    ///< imports that broke
  std::uint64_t stale = 0;     ///< messages without effect
  std::uint64_t refused = 0;   ///< messages that no correct peer sends
  std::array<std::uint64_t, message_kinds> sent{};  ///< by message_kind
  // Set by the shell:
  std::uint64_t frames = 0;   ///< frames that hold the sent messages
  std::uint64_t waiting = 0;  ///< gauge: requests that wait for a value being made
};

/// One owned reference, for reports and tests.
struct owned_view {
  value_state value = value_state::promised;
  std::uint64_t local_refs = 0;
  std::uint64_t pins = 0;
  std::vector<rank> holders;  ///< ascending
  std::size_t rows = 0;       ///< holders and remembered former holders: at most one per rank
};

/// One imported reference, for reports and tests.
struct import_view {
  import_state state = import_state::registering;
  cause why = cause::none;
  std::uint64_t local_refs = 0;
  std::uint64_t pins = 0;
  std::uint64_t sequence = 0;
  std::size_t waiting = 0;  ///< hand-overs to answer once registered
};

[[nodiscard]] constexpr std::string_view to_string(cause c) noexcept {
  constexpr std::array<std::string_view, 7> text{
      "none",         "lost",     "owner died",      "creation failed",
      "creator died", "too many", "too many imports"};
  return text[static_cast<std::size_t>(c)];
}
[[nodiscard]] constexpr std::string_view to_string(message_kind k) noexcept {
  constexpr std::array<std::string_view, message_kinds> text{"add", "del", "added", "deled",
                                                             "xack"};
  return text[static_cast<std::size_t>(k)];
}
[[nodiscard]] constexpr std::string_view to_string(value_state v) noexcept {
  constexpr std::array<std::string_view, 4> text{"promised", "pending", "ready", "failed"};
  return text[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view to_string(import_state s) noexcept {
  constexpr std::array<std::string_view, 4> text{"registering", "ok", "releasing", "broken"};
  return text[static_cast<std::size_t>(s)];
}

}  // namespace weft::rref_protocol
