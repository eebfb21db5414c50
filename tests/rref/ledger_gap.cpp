// SPDX-License-Identifier: BSL-1.0
// One creation is late, many others pass it: as many as the ledger's limits say, and not one more.
#include <weft/rref/ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rref_gap {

using weft::rref_id;
using namespace weft::rref_protocol;

constexpr rank owner = 0;
constexpr rank alice = 1;
constexpr rank bob = 2;

static_assert(ledger_limits().creation_window == 65536);  // what a creator may count on, too
static_assert(ledger_limits().promised_per_peer == 65536);
/// Smaller, which makes no difference but to the time that it takes under a sanitizer.
constexpr std::uint64_t window = 2048;
constexpr ledger_limits bounds{.creation_window = window, .promised_per_peer = window};

/// Three workers whose control messages are carried by hand.
struct trio {
  ledger at[3]{{owner, 3, bounds}, {alice, 3, bounds}, {bob, 3, bounds}};
  outputs out[3];
  std::vector<event> events[3];

  /// Until nobody says anything. True: nobody said what no correct peer says.
  bool carry() {
    bool fine = true;
    for (int turns = 0; turns < 100; ++turns) {
      bool quiet = true;
      for (rank from = 0; from < 3; ++from) {
        events[from].insert(events[from].end(), out[from].events.begin(), out[from].events.end());
        out[from].events.clear();
        for (const auto& m : std::exchange(out[from].messages, {})) {
          quiet = false;
          fine = at[m.to].frame(from, m.what, out[m.to]) != received::refused && fine;
        }
      }
      if (quiet) return fine;
    }
    FAIL("they never fall silent");
    return false;
  }
  received create(const creation& what) { return at[owner].created(alice, what, out[owner]); }
  received withdraw(const creation& what) {
    message del;
    del.kind = message_kind::del;
    del.id = what.id;
    del.sequence = what.sequence + 1'000'000;
    return at[owner].frame(alice, del, out[owner]);
  }
  [[nodiscard]] bool idle() const { return at[owner].idle() && at[alice].idle() && at[bob].idle(); }
};

enum class first_request { leaves, stays };
/// Alice asks for so many values; nothing of it has arrived. All requests have left, but perhaps
/// the first.
std::vector<creation> ask_for(trio& t, std::uint64_t number,
                              first_request first = first_request::leaves) {
  std::vector<creation> made;
  for (std::uint64_t i = 0; i < number; ++i) {
    const auto one = t.at[alice].create_remote(owner);
    REQUIRE(one);
    made.push_back(*one);
    if (i != 0 || first == first_request::leaves) t.at[alice].creation_sent(one->id);
  }
  REQUIRE(made.back().id.serial == number);
  return made;
}
/// Those of them arrive, in their order.
std::uint64_t arrive(trio& t, const std::vector<creation>& made, std::size_t begin,
                     std::size_t end) {
  std::uint64_t accepted = 0;
  for (std::size_t i = begin; i < end; ++i) {
    accepted += t.create(made[i]) == received::accepted ? 1u : 0u;
  }
  return accepted;
}
/// All are made, used no more and dropped: each is released once, in the order of the drops.
void finish(trio& t, const std::vector<creation>& made) {
  std::uint64_t ready = 0, dropped = 0;
  for (const auto& c : made) ready += t.at[owner].value_ready(c.id, t.out[owner]) ? 1u : 0u;
  CHECK(ready == made.size());
  CHECK(t.carry());
  t.events[owner].clear();
  for (const auto& c : made) dropped += t.at[alice].drop_local_ref(c.id, t.out[alice]) ? 1u : 0u;
  CHECK(dropped == made.size());
  CHECK(t.carry());
  const auto& released = t.events[owner];
  REQUIRE(released.size() == made.size());
  CHECK(std::equal(released.begin(), released.end(), made.begin(),
                   [](const event& e, const creation& c) {
                     return e == event{event_kind::released, c.id, value_state::ready, cause::none};
                   }));
  CHECK(t.at[owner].counters().released == made.size());
  CHECK(t.at[owner].counters().holders == 0);
  CHECK(t.idle());
}

namespace {

TEST_CASE("rref ledger gap: as many creations as may pass a late one are made, one more is not") {
  trio t;
  const auto made = ask_for(t, window + 1);
  const creation &late = made.front(), &last = made[window - 1], &beyond = made[window];
  REQUIRE(arrive(t, made, 1, window) == window - 1);
  CHECK(t.at[owner].value(last.id) == value_state::pending);

  CHECK(t.create(beyond) == received::refused);
  CHECK(t.at[owner].counters().refused == 1);
  CHECK(t.at[owner].counters().owned == window - 1);
  CHECK_FALSE(t.at[owner].value(beyond.id));
  // Those behind the gap are known, one by one.
  for (const std::size_t again : {std::size_t{1}, std::size_t{window / 2}, std::size_t{window - 1}})
    CHECK(t.create(made[again]) == received::stale);
  CHECK(t.at[owner].counters().created == window - 1);
  // Each was answered when it came, and only then.
  const auto& said = t.out[owner].messages;
  REQUIRE(said.size() == window - 1);
  CHECK(std::equal(said.begin(), said.end(), made.begin() + 1, [](const auto& m, const auto& c) {
    return m.to == alice && m.what.kind == message_kind::added && m.what.why == cause::none &&
           m.what.id == c.id && m.what.sequence == c.sequence;
  }));

  CHECK(t.create(late) == received::accepted);
  CHECK(t.create(beyond) == received::accepted);
  CHECK(t.create(late) == received::stale);
  CHECK(t.at[owner].counters().owned == window + 1);
  CHECK(t.carry());
  CHECK(std::all_of(made.begin(), made.end(), [&](const creation& c) {
    return t.at[alice].imported(c.id)->state == import_state::ok;
  }));
  finish(t, made);
}

TEST_CASE("rref ledger gap: what is allowed ahead moves on with what has come, by as much") {
  trio t;
  const auto made = ask_for(t, 100);
  REQUIRE(arrive(t, made, 0, 50) == 50);
  REQUIRE(arrive(t, made, 51, 100) == 49);  // all through the 50th have come
  const auto ahead = [](std::uint64_t serial) { return creation{{owner, alice, serial}, serial}; };
  CHECK(t.create(ahead(50 + window + 1)) == received::refused);
  CHECK(t.create(ahead(50 + window)) == received::accepted);
  REQUIRE(t.create(made[50]) == received::accepted);  // now all through the 100th
  CHECK(t.create(ahead(100 + window + 1)) == received::refused);
  CHECK(t.create(ahead(100 + window)) == received::accepted);
  CHECK(t.at[owner].counters().owned == 102);
  // The loss of their creator frees them, whatever is missing.
  std::uint64_t ready = 0;
  for (const auto& c : made) ready += t.at[owner].value_ready(c.id, t.out[owner]) ? 1u : 0u;
  for (const std::uint64_t serial : {50 + window, 100 + window})
    ready += t.at[owner].value_ready({owner, alice, serial}, t.out[owner]) ? 1u : 0u;
  CHECK(ready == 102);
  t.at[owner].peer_lost(alice, t.out[owner]);
  CHECK(t.at[owner].idle());
  CHECK(t.at[owner].counters().released == 102);
}

TEST_CASE("rref ledger gap: a request that was never sent closes the gap that it left") {
  trio t;
  auto made = ask_for(t, window, first_request::stays);
  const creation never = made.front();
  REQUIRE(arrive(t, made, 1, window) == window - 1);
  CHECK(t.create({{owner, alice, window + 1}, window + 1}) == received::refused);
  t.at[alice].creation_dropped(never.id, t.out[alice]);
  CHECK(t.carry());
  CHECK(t.at[alice].imported(never.id)->why == cause::creation_failed);
  CHECK_FALSE(t.at[owner].value(never.id));
  CHECK(t.create(never) == received::stale);
  const auto next = t.at[alice].create_remote(owner);
  REQUIRE(next);
  CHECK(next->id.serial == window + 1);
  CHECK(t.create(*next) == received::accepted);
  CHECK(t.at[alice].drop_local_ref(never.id, t.out[alice]));
  made.erase(made.begin());
  made.push_back(*next);
  finish(t, made);
}

TEST_CASE("rref ledger gap: a creator asks for no more than may pass the one that waits to leave") {
  trio t;
  auto made = ask_for(t, window, first_request::stays);
  CHECK_FALSE(t.at[alice].may_create(owner));
  CHECK_FALSE(t.at[alice].create_remote(owner));
  CHECK_FALSE(t.at[alice].create_remote(owner));
  CHECK(t.at[alice].counters().imports == window);  // those that were refused left nothing
  CHECK(t.at[alice].may_create(bob));               // other owners do not count
  CHECK(t.at[alice].may_create(alice));

  SUBCASE("until that has left") { t.at[alice].creation_sent(made.front().id); }
  SUBCASE("until the owner has answered it") {
    CHECK(t.create(made.front()) == received::accepted);
    CHECK(t.carry());
  }
  // All that were created before have left: as many again may pass the next one.
  const auto next = t.at[alice].create_remote(owner);
  REQUIRE(next);
  CHECK(next->id.serial == window + 1);
  made.push_back(*next);
  for (std::uint64_t i = 1; i < window; ++i) {
    const auto one = t.at[alice].create_remote(owner);
    REQUIRE(one);
    t.at[alice].creation_sent(one->id);
    made.push_back(*one);
  }
  CHECK_FALSE(t.at[alice].create_remote(owner));
  t.at[alice].creation_sent(next->id);
  CHECK(t.at[alice].may_create(owner));
  // A link that keeps their order delivers them all.
  std::uint64_t accepted = 0;
  for (const auto& c : made) accepted += t.create(c) != received::refused ? 1u : 0u;
  CHECK(accepted == made.size());
  CHECK(t.at[owner].counters().refused == 0);
  finish(t, made);
}

TEST_CASE("rref ledger gap: whose requests leave in turn may have any number on the way") {
  trio t;
  const auto made = ask_for(t, 3 * window);
  CHECK(made.back().id.serial == 3 * window);
  CHECK(arrive(t, made, 0, made.size()) == made.size());
  CHECK(t.at[owner].counters().refused == 0);
  finish(t, made);
}

TEST_CASE("rref ledger gap: a creation whose owner is lost stands in nobody's way") {
  trio t;
  static_cast<void>(ask_for(t, window, first_request::stays));
  t.at[alice].peer_lost(owner, t.out[alice]);
  CHECK(t.at[alice].may_create(owner));  // create_remote says that it is lost
  CHECK_FALSE(t.at[alice].create_remote(owner));
  CHECK(t.at[alice].create_remote(bob));
}

TEST_CASE("rref ledger gap: a request may say that it never was, as far ahead as it may be made") {
  trio t;
  const auto made = ask_for(t, window + 1);
  CHECK(t.withdraw(made[window]) == received::refused);
  CHECK(t.withdraw(made[window - 1]) == received::accepted);
  CHECK(t.create(made[window - 1]) == received::stale);
  REQUIRE(arrive(t, made, 0, window - 1) == window - 1);
  CHECK(t.create(made[window]) == received::accepted);  // it withdrew nothing
}

TEST_CASE("rref ledger gap: what is named as far ahead is promised, what is beyond is typed") {
  trio t;
  auto made = ask_for(t, window + 1);
  const rref_id last = made[window - 1].id, beyond = made[window].id;
  for (const rref_id& id : {last, beyond}) {
    const auto given = t.at[alice].transfer_out(id, bob);
    REQUIRE(given);
    REQUIRE(t.at[bob].transfer_in(alice, *given, t.out[bob])->held());
  }
  CHECK(t.carry());
  CHECK(t.at[owner].value(last) == value_state::promised);
  CHECK(t.at[bob].imported(last)->state == import_state::registering);
  CHECK_FALSE(t.at[owner].value(beyond));
  REQUIRE(t.at[bob].imported(beyond));
  CHECK(t.at[bob].imported(beyond)->state == import_state::broken);
  CHECK(t.at[bob].imported(beyond)->why == cause::too_many);
  CHECK(t.at[alice].counters().pins == 1);  // bob's answer came for the one that broke, too
  // So it is for a use, and for one that comes home.
  CHECK(t.at[owner].acquire(alice, beyond)->why == cause::too_many);
  const auto home = t.at[alice].transfer_out(beyond, owner);
  REQUIRE(home);
  CHECK(t.at[owner].transfer_in(alice, *home, t.out[owner])->why == cause::too_many);
  REQUIRE(t.at[owner].acquire(alice, last)->held());
  CHECK(t.at[owner].counters().promised == 1);
  CHECK(t.at[owner].counters().refused == 0);

  // Nothing else suffers: all are made, and bob may have the other one then.
  REQUIRE(arrive(t, made, 0, window + 1) == window + 1);
  CHECK(t.carry());
  CHECK(t.at[bob].imported(last)->state == import_state::ok);
  CHECK(t.at[alice].counters().pins == 0);
  CHECK(t.at[bob].drop_local_ref(beyond, t.out[bob]));
  const auto again = t.at[alice].transfer_out(beyond, bob);
  REQUIRE(again);
  CHECK(t.at[bob].transfer_in(alice, *again, t.out[bob])->held());
  CHECK(t.carry());
  CHECK(t.at[bob].imported(beyond)->state == import_state::ok);
  for (const rref_id& id : {last, beyond}) CHECK(t.at[bob].drop_local_ref(id, t.out[bob]));
  CHECK(t.at[owner].drop_local_ref(last, t.out[owner]));
  CHECK(t.carry());
  finish(t, made);
}

TEST_CASE("rref ledger gap: one peer fills its own account of promises, not another's") {
  trio t;
  const auto made = ask_for(t, window);
  // Bob uses all of them before they come.
  std::uint64_t held = 0;
  for (const auto& c : made) held += t.at[owner].acquire(bob, c.id)->held() ? 1u : 0u;
  CHECK(held == window);
  CHECK(t.at[owner].counters().promised == window);
  CHECK(t.at[owner].acquire(bob, {owner, bob, 1})->why == cause::too_many);
  CHECK(t.at[owner].acquire(alice, {owner, bob, 1})->held());
  CHECK(t.at[owner].acquire(bob, {owner, bob, 1})->held());  // it is promised already
  REQUIRE(t.create(made.front()) == received::accepted);
  CHECK(t.at[owner].acquire(bob, {owner, bob, 2})->held());  // there is room for one
  CHECK(t.at[owner].acquire(bob, {owner, bob, 3})->why == cause::too_many);
}

}  // namespace
}  // namespace rref_gap
