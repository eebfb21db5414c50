// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/ledger.hpp>
#include <weft/rref/ledger_wire.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rref_ledger {

using weft::rref_id;
using namespace weft::rref_protocol;

namespace {

constexpr rank owner = 0;
constexpr rank alice = 1;
constexpr rank bob = 2;

// Three workers and the control messages between them; nothing moves unless a test says so.
struct world {
  struct flying {
    rank from, to;
    message what;
  };
  std::deque<ledger> at;
  std::deque<flying> wire;
  std::vector<flying> history;
  std::array<std::vector<event>, 3> events;
  std::array<outputs, 3> out;

  explicit world(ledger_limits limits = {}) {
    for (rank r = 0; r < 3; ++r) at.emplace_back(r, 3u, limits);
  }

  void collect() {
    for (rank r = 0; r < 3; ++r) {
      for (const auto& m : out[r].messages) {
        std::array<std::byte, message_bytes> bytes{};  // every test runs over the codec
        REQUIRE(encode(m.what, bytes));
        const auto read = decode_message(bytes);
        REQUIRE(read.has_value());
        REQUIRE(*read == m.what);
        wire.push_back({r, m.to, *read});
        history.push_back(wire.back());
      }
      events[r].insert(events[r].end(), out[r].events.begin(), out[r].events.end());
      out[r].clear();
    }
  }

  received deliver(const flying& f) {
    const received result = at[f.to].frame(f.from, f.what, out[f.to]);
    collect();
    return result;
  }
  // Delivers the oldest message, which must be of that kind.
  void next(message_kind kind) {
    collect();
    REQUIRE_FALSE(wire.empty());
    const flying f = wire.front();
    REQUIRE(f.what.kind == kind);
    wire.pop_front();
    CHECK(deliver(f) == received::accepted);
  }
  void settle() {
    collect();
    while (!wire.empty()) {
      const flying f = wire.front();
      wire.pop_front();
      CHECK(deliver(f) == received::accepted);
    }
  }

  rref_id share_value() {
    const rref_id id = at[owner].create_local();
    REQUIRE(at[owner].value_ready(id, out[owner]));
    return id;
  }
  // Payload with one reference, sent and received at once.
  import_result give(rank from, rank to, const rref_id& id) {
    const auto t = at[from].transfer_out(id, to);
    REQUIRE(t.has_value());
    const auto got = at[to].transfer_in(from, *t, out[to]);
    collect();
    REQUIRE(got.has_value());
    return *got;
  }
  void drop(rank who, const rref_id& id) {
    REQUIRE(at[who].drop_local_ref(id, out[who]));
    collect();
  }
  void lose(rank who) {
    std::erase_if(wire, [&](const flying& f) { return f.to == who || f.from == who; });
    for (rank r = 0; r < 3; ++r)
      if (r != who) at[r].peer_lost(who, out[r]);
    collect();
  }
  // Alice asks the owner for a value; the request is received at once.
  rref_id remote_value() {
    const auto c = at[alice].create_remote(owner);
    REQUIRE(c.has_value());
    REQUIRE(at[owner].created(alice, *c, out[owner]) == received::accepted);
    REQUIRE(at[owner].value_ready(c->id, out[owner]));
    settle();
    return c->id;
  }

  [[nodiscard]] import_state state(rank who, const rref_id& id) const {
    const auto view = at[who].imported(id);
    REQUIRE(view.has_value());
    return view->state;
  }
  [[nodiscard]] std::vector<rank> holders(const rref_id& id) const {
    const auto view = at[owner].owned(id);
    REQUIRE(view.has_value());
    return view->holders;
  }
  [[nodiscard]] std::ptrdiff_t sent(message_kind kind, rank from, rank to) const {
    return std::count_if(history.begin(), history.end(), [&](const flying& f) {
      return f.what.kind == kind && f.from == from && f.to == to;
    });
  }
  [[nodiscard]] std::ptrdiff_t releases(const rref_id& id) const {
    return std::count_if(events[owner].begin(), events[owner].end(), [&](const event& e) {
      return e.kind == event_kind::released && e.id == id;
    });
  }
  void nothing_left() const {
    for (const ledger& l : at) {
      CHECK(l.idle());
      CHECK(l.describe() == "");
      CHECK(l.counters().holders == 0);
      CHECK(l.counters().promised == 0);
      CHECK(l.counters().created == l.counters().released);
    }
  }
};

}  // namespace

TEST_CASE("rref ledger: user shares with owner") {
  world w;
  const rref_id id = w.remote_value();
  CHECK(w.holders(id) == std::vector<rank>{alice});

  CHECK(w.give(alice, owner, id).held());
  CHECK(w.at[owner].owned(id)->local_refs == 1);
  w.drop(alice, id);
  // G2: the hand-over is not answered yet, so the parent stays registered.
  CHECK(w.sent(message_kind::del, alice, owner) == 0);
  CHECK(w.state(alice, id) == import_state::ok);
  w.next(message_kind::xack);
  // G1: only now, and certainly, the owner hears of it.
  w.next(message_kind::del);
  CHECK(w.holders(id).empty());
  CHECK(w.releases(id) == 0);  // its own reference keeps the value
  w.next(message_kind::deled);
  CHECK(w.sent(message_kind::add, alice, owner) == 0);

  w.drop(owner, id);
  CHECK(w.releases(id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: owner shares with user") {
  world w;
  const rref_id id = w.share_value();
  CHECK(w.give(owner, alice, id).held());
  CHECK(w.state(alice, id) == import_state::ok);  // our pin covers it, nothing to wait for
  w.drop(owner, id);
  // G2: the owner keeps the value while the child is not registered.
  CHECK(w.releases(id) == 0);
  CHECK(w.at[owner].owned(id)->pins == 1);

  SUBCASE("the child registers, then deletes") {
    w.next(message_kind::add);
    CHECK(w.holders(id) == std::vector<rank>{alice});
    CHECK(w.at[owner].owned(id)->pins == 0);
    CHECK(w.wire.empty());  // one message is all that it takes
    w.drop(alice, id);
    w.next(message_kind::del);  // G1
    CHECK(w.releases(id) == 1);
    w.next(message_kind::deled);
  }
  SUBCASE("the child's deletion overtakes its registration") {
    w.drop(alice, id);
    REQUIRE(w.wire.size() == 2);
    std::swap(w.wire[0], w.wire[1]);
    w.next(message_kind::del);
    CHECK(w.releases(id) == 0);
    const auto add = w.wire.front();
    w.wire.pop_front();
    CHECK(w.deliver(add) == received::stale);  // registers nobody, but answers the hand-over
    CHECK(w.releases(id) == 1);
    w.next(message_kind::deled);
  }
  w.nothing_left();
}

TEST_CASE("rref ledger: owner creates on user and user returns it") {
  world w;
  // The note's caller is the owner of nothing: it asks `owner` to make a value, which returns it.
  const auto c = w.at[alice].create_remote(owner);
  REQUIRE(c.has_value());
  CHECK(w.state(alice, c->id) == import_state::registering);
  REQUIRE(w.at[owner].created(alice, *c, w.out[owner]) == received::accepted);
  CHECK(w.at[owner].value(c->id) == value_state::pending);
  CHECK(w.holders(c->id) == std::vector<rank>{alice});
  w.drop(alice, c->id);
  // G2: not confirmed yet, so no deletion.
  CHECK(w.sent(message_kind::del, alice, owner) == 0);

  SUBCASE("the reference dies before the value is there") {
    w.next(message_kind::added);
    w.next(message_kind::del);  // G1
    w.next(message_kind::deled);
    CHECK(w.releases(c->id) == 0);  // its function still runs
    CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
  }
  SUBCASE("the value is there first") {
    CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
    w.collect();
    CHECK(w.releases(c->id) == 0);
    w.settle();
  }
  SUBCASE("making it fails") {
    CHECK(w.at[owner].value_failed(c->id, w.out[owner]));
    CHECK(w.at[owner].value(c->id) == value_state::failed);  // kept for those who ask
    w.settle();
  }
  w.collect();
  CHECK(w.releases(c->id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: user shares with user") {
  world w;
  const rref_id id = w.remote_value();
  CHECK(w.give(alice, bob, id).held());
  CHECK(w.state(bob, id) == import_state::registering);
  w.drop(alice, id);
  CHECK(w.sent(message_kind::del, alice, owner) == 0);  // G2: pinned
  w.next(message_kind::add);
  CHECK(w.holders(id) == std::vector<rank>{alice, bob});
  w.next(message_kind::added);
  CHECK(w.state(bob, id) == import_state::ok);
  CHECK(w.sent(message_kind::del, alice, owner) == 0);  // G2: the child is confirmed, not answered
  w.next(message_kind::xack);
  w.next(message_kind::del);  // G1
  CHECK(w.holders(id) == std::vector<rank>{bob});
  w.next(message_kind::deled);
  CHECK(w.releases(id) == 0);
  w.drop(bob, id);
  w.settle();  // G1
  CHECK(w.releases(id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: sharing with a holder sends nothing to the owner") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  w.settle();
  const std::size_t before = w.history.size();
  w.give(alice, bob, id);
  w.give(bob, alice, id);
  w.settle();
  REQUIRE(w.history.size() == before + 2);
  CHECK(w.history[before].what.kind == message_kind::xack);
  CHECK(w.history[before + 1].what.kind == message_kind::xack);
  for (const rank who : {alice, bob}) {
    w.drop(who, id);
    w.drop(who, id);
  }
  w.settle();
  CHECK(w.releases(id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: sharing with oneself sends nothing at all") {
  world w;
  const rref_id id = w.remote_value();
  const std::size_t before = w.history.size();
  w.give(alice, alice, id);
  w.drop(alice, id);
  CHECK(w.history.size() == before);
  w.drop(alice, id);
  w.settle();
  const rref_id mine = w.share_value();
  w.give(owner, owner, mine);
  w.drop(owner, mine);
  w.drop(owner, mine);
  CHECK(w.releases(mine) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: a value made on oneself by remote") {
  world w;
  const auto c = w.at[owner].create_remote(owner);
  REQUIRE(c.has_value());
  CHECK(w.at[owner].created(owner, *c, w.out[owner]) == received::accepted);
  w.drop(owner, c->id);
  CHECK(w.releases(c->id) == 0);
  CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
  w.collect();
  CHECK(w.releases(c->id) == 1);

  const auto d = w.at[owner].create_remote(owner);
  w.at[owner].creation_dropped(d->id, w.out[owner]);
  CHECK(w.at[owner].value(d->id) == value_state::failed);
  // Those who wait for it are told.
  REQUIRE(w.out[owner].events.size() == 1);
  CHECK(w.out[owner].events[0] ==
        event{event_kind::failed, d->id, value_state::failed, cause::creation_failed});
  w.at[owner].creation_dropped(d->id, w.out[owner]);
  CHECK(w.out[owner].events.size() == 1);
  w.drop(owner, d->id);
  w.nothing_left();
}

TEST_CASE("rref ledger: a hand-over that was dropped holds nothing") {
  world w;
  const rref_id id = w.remote_value();
  const auto t = w.at[alice].transfer_out(id, bob);
  w.drop(alice, id);
  CHECK(w.sent(message_kind::del, alice, owner) == 0);
  w.at[alice].transfer_dropped(t->number, w.out[alice]);
  w.at[alice].transfer_dropped(t->number, w.out[alice]);
  w.settle();
  CHECK(w.releases(id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: a third worker registers before the creation arrives") {
  world w;
  const auto c = w.at[alice].create_remote(owner);
  CHECK(w.give(alice, bob, c->id).held());
  w.next(message_kind::add);
  CHECK(w.at[owner].value(c->id) == value_state::promised);
  CHECK(w.wire.empty());  // the answer waits
  CHECK(w.at[owner].counters().promised == 1);
  CHECK(w.at[owner].acquire(bob, c->id)->held());  // so does a use
  CHECK(w.give(bob, owner, c->id).held());         // and a hand-over home

  SUBCASE("the creation arrives") {
    CHECK(w.at[owner].created(alice, *c, w.out[owner]) == received::accepted);
    CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
    w.settle();
    CHECK(w.state(alice, c->id) == import_state::ok);
    CHECK(w.state(bob, c->id) == import_state::ok);
    CHECK(w.at[owner].created(alice, *c, w.out[owner]) == received::stale);  // I2
    w.drop(alice, c->id);
    w.drop(bob, c->id);
    w.drop(owner, c->id);
    w.settle();
    CHECK(w.releases(c->id) == 0);
    w.drop(owner, c->id);
    CHECK(w.releases(c->id) == 1);
    w.nothing_left();
  }
  SUBCASE("the creation was never sent") {
    w.at[alice].creation_dropped(c->id, w.out[alice]);
    w.collect();
    CHECK(w.state(alice, c->id) == import_state::broken);
    CHECK(w.at[alice].imported(c->id)->why == cause::creation_failed);
    REQUIRE(w.events[alice].size() == 1);
    CHECK(w.events[alice][0].kind == event_kind::broken);
    while (!w.wire.empty()) {
      const auto f = w.wire.front();
      w.wire.pop_front();
      CHECK(w.deliver(f) != received::refused);
    }
    CHECK(w.state(bob, c->id) == import_state::broken);
    CHECK(w.at[bob].imported(c->id)->why == cause::creation_failed);
    CHECK(w.at[owner].value(c->id) == value_state::failed);
    REQUIRE(w.events[owner].size() == 1);
    CHECK(w.events[owner][0].kind == event_kind::failed);
    CHECK(w.at[owner].created(alice, *c, w.out[owner]) == received::stale);
    CHECK_FALSE(w.at[bob].transfer_out(c->id, alice).has_value());
    w.drop(alice, c->id);
    w.drop(bob, c->id);
    w.drop(owner, c->id);
    w.drop(owner, c->id);
    CHECK(w.releases(c->id) == 1);
    w.nothing_left();
  }
  SUBCASE("the creator dies first") {
    w.lose(alice);
    w.settle();
    CHECK(w.at[bob].imported(c->id)->why == cause::creator_died);
    CHECK(w.at[owner].value(c->id) == value_state::failed);
    w.drop(bob, c->id);
    w.drop(owner, c->id);
    w.drop(owner, c->id);
    CHECK(w.at[owner].idle());
    CHECK(w.at[bob].idle());
    // whoever comes later is told so, and nothing is kept
    CHECK(w.at[owner].acquire(bob, {owner, alice, 7})->why == cause::creator_died);
    CHECK(w.at[owner].idle());
  }
}

TEST_CASE("rref ledger: creations may pass each other") {
  world w;
  const auto first = w.at[alice].create_remote(owner);
  const auto second = w.at[alice].create_remote(owner);
  CHECK(w.at[owner].created(alice, *second, w.out[owner]) == received::accepted);
  CHECK(w.at[owner].acquire(bob, first->id)->held());  // not "gone"
  CHECK(w.at[owner].created(alice, *first, w.out[owner]) == received::accepted);
  CHECK(w.at[owner].value(first->id) == value_state::pending);
  for (const auto& c : {first, second}) {
    CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
    w.drop(alice, c->id);
  }
  w.drop(owner, first->id);
  w.settle();
  w.nothing_left();
}

TEST_CASE("rref ledger: repeated and late messages have no effect") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  w.settle();
  w.drop(bob, id);
  w.settle();
  w.give(alice, bob, id);
  w.settle();
  const auto count = w.history.size();
  const auto everything = w.history;
  for (int round = 0; round < 2; ++round)
    for (const auto& f : everything) CHECK(w.deliver(f) != received::refused);
  CHECK(w.history.size() > count);  // some are answered again
  while (!w.wire.empty()) {
    const auto f = w.wire.front();
    w.wire.pop_front();
    CHECK(w.deliver(f) != received::refused);
  }
  CHECK(w.holders(id) == std::vector<rank>{alice, bob});
  CHECK(w.state(alice, id) == import_state::ok);
  CHECK(w.state(bob, id) == import_state::ok);
  w.drop(alice, id);
  w.drop(bob, id);
  w.settle();
  CHECK(w.releases(id) == 1);
  for (const auto& f : everything) CHECK(w.deliver(f) != received::refused);  // I2
  while (!w.wire.empty()) {
    const auto f = w.wire.front();
    w.wire.pop_front();
    w.deliver(f);
  }
  w.nothing_left();
}

TEST_CASE("rref ledger: who left before the creation arrived is not registered by a late repeat") {
  world w;
  const auto c = w.at[alice].create_remote(owner);
  CHECK(w.at[owner].acquire(alice, c->id)->held());
  CHECK(w.give(owner, bob, c->id).held());
  const auto add = w.wire.front();
  w.drop(bob, c->id);
  w.settle();
  w.drop(owner, c->id);
  CHECK(w.at[owner].value(c->id) == value_state::promised);
  CHECK(w.deliver(add) == received::stale);
  CHECK(w.at[owner].created(alice, *c, w.out[owner]) == received::accepted);
  CHECK(w.holders(c->id) == std::vector<rank>{alice});
  CHECK(w.deliver(add) == received::stale);
  CHECK(w.at[owner].value_ready(c->id, w.out[owner]));
  w.drop(alice, c->id);
  w.settle();
  CHECK(w.releases(c->id) == 1);
  w.nothing_left();
}

TEST_CASE("rref ledger: a repeated add after the creation was withdrawn registers nobody") {
  world w;
  const auto c = w.at[alice].create_remote(owner);
  w.give(alice, bob, c->id);
  w.collect();
  const auto add = w.wire.front();
  w.settle();
  CHECK(w.give(bob, owner, c->id).held());  // keeps the entry
  w.at[alice].creation_dropped(c->id, w.out[alice]);
  w.collect();
  while (!w.wire.empty()) {
    const auto f = w.wire.front();
    w.wire.pop_front();
    CHECK(w.deliver(f) != received::refused);
  }
  CHECK(w.at[owner].value(c->id) == value_state::failed);
  CHECK(w.holders(c->id).empty());
  CHECK(w.deliver(add) == received::stale);
  CHECK(w.holders(c->id).empty());
  w.drop(owner, c->id);
  w.drop(alice, c->id);
  w.drop(bob, c->id);
  w.nothing_left();
}

TEST_CASE("rref ledger: an answer to an earlier registration or release is late") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  w.next(message_kind::add);
  const auto added = w.wire.front();
  w.settle();
  w.drop(bob, id);
  w.next(message_kind::del);
  const auto deled = w.wire.front();
  w.settle();

  w.give(alice, bob, id);
  CHECK(w.deliver(added) == received::stale);
  CHECK(w.state(bob, id) == import_state::registering);
  w.settle();
  w.drop(bob, id);
  CHECK(w.deliver(deled) == received::stale);
  CHECK(w.state(bob, id) == import_state::releasing);
  w.settle();
  w.drop(alice, id);
  w.settle();
  w.nothing_left();
}

TEST_CASE("rref ledger: a late repeat of a release does not unregister") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  w.settle();
  w.drop(bob, id);
  w.collect();
  const auto del = w.wire.front();
  w.settle();
  w.give(alice, bob, id);
  w.settle();
  CHECK(w.deliver(del) == received::stale);
  CHECK(w.holders(id) == std::vector<rank>{alice, bob});
}

TEST_CASE("rref ledger: a lost user's holdings are freed") {
  world w;
  const rref_id mine = w.share_value();
  w.give(owner, alice, mine);
  w.settle();
  const rref_id made = w.remote_value();
  w.give(owner, bob, mine);  // answered by nobody
  w.drop(owner, mine);
  w.lose(alice);
  CHECK(w.releases(made) == 1);
  CHECK(w.releases(mine) == 0);
  w.lose(bob);
  CHECK(w.releases(mine) == 1);
  CHECK(w.at[owner].idle());
  CHECK_FALSE(w.at[owner].create_remote(alice).has_value());
  CHECK_FALSE(w.at[owner].transfer_out(mine, alice).has_value());
  message late;
  late.id = mine;
  late.sequence = 9;
  CHECK(w.at[owner].frame(alice, late, w.out[owner]) == received::stale);
  CHECK(w.at[owner].idle());
}

TEST_CASE("rref ledger: a lost owner breaks what is imported from it") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);  // bob is registering
  w.lose(owner);
  for (const rank who : {alice, bob}) {
    CHECK(w.state(who, id) == import_state::broken);
    CHECK(w.at[who].imported(id)->why == cause::owner_died);
    REQUIRE(w.events[who].size() == 1);
    CHECK(w.events[who][0] ==
          event{event_kind::broken, id, value_state::promised, cause::owner_died});
  }
  w.settle();  // the hand-over is still answered
  CHECK(w.at[alice].counters().pins == 0);
  const auto late = w.at[bob].transfer_in(alice, {{owner, alice, 5}, 99}, w.out[bob]);
  CHECK(late->why == cause::owner_died);
  w.drop(alice, id);
  w.drop(bob, id);
  CHECK(w.at[alice].idle());
  CHECK(w.at[bob].idle());
}

TEST_CASE("rref ledger: a hand-over that only a dead sender covered is lost, by name") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  const auto add = w.wire.front();
  w.wire.clear();
  w.at[owner].peer_lost(alice, w.out[owner]);
  w.collect();
  CHECK(w.releases(id) == 1);
  CHECK(w.deliver(add) == received::accepted);
  w.at[bob].peer_lost(alice, w.out[bob]);
  w.next(message_kind::added);
  CHECK(w.at[bob].imported(id)->why == cause::lost);
  w.drop(bob, id);
  CHECK(w.at[bob].idle());
  CHECK(w.at[owner].idle());
}

TEST_CASE("rref ledger: what a hostile peer can make the owner keep is bounded") {
  ledger_limits limits;
  limits.promised_per_peer = 8;
  limits.creation_window = 100;
  world w(limits);
  message add;
  std::uint64_t kept = 0;
  for (std::uint64_t serial = 1; serial <= 1000; ++serial) {
    add.id = {owner, alice, serial};
    add.sequence = serial;
    CHECK(w.at[owner].frame(bob, add, w.out[owner]) == received::accepted);
    kept = std::max(kept, w.at[owner].counters().owned);
  }
  CHECK(kept == 8);
  CHECK(w.out[owner].messages.size() == 992);
  CHECK(w.out[owner].messages[0].what.why == cause::too_many);
  CHECK(w.at[owner].created(bob, {{owner, bob, 102}, 1}, w.out[owner]) == received::refused);
  w.out[owner].clear();
  w.at[owner].peer_lost(bob, w.out[owner]);
  CHECK(w.at[owner].idle());
  CHECK(w.at[owner].counters().promised == 0);
}

TEST_CASE("rref ledger: what one peer can give a worker is bounded, and typed") {
  ledger_limits limits;
  limits.imports_per_peer = 4;
  world w(limits);
  std::vector<rref_id> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(w.share_value());
  for (int i = 0; i < 4; ++i) CHECK(w.give(owner, alice, ids[i]).held());
  CHECK(w.give(owner, alice, ids[0]).held());  // it has that one already
  CHECK(w.give(owner, alice, ids[4]).why == cause::too_many_imports);
  w.settle();
  CHECK(w.at[alice].counters().imports == 4);
  CHECK(w.at[owner].counters().pins == 0);  // what was not taken is answered, too
  CHECK(w.at[owner].counters().refused == 0);
  // From another peer it may come, and when one of them is let go, from this one.
  CHECK(w.give(owner, bob, ids[4]).held());
  w.settle();
  CHECK(w.give(bob, alice, ids[4]).held());
  w.drop(alice, ids[1]);
  w.settle();
  CHECK(w.give(owner, alice, ids[5]).held());
  w.settle();
  for (const int i : {0, 0, 2, 3, 4, 5}) w.drop(alice, ids[i]);
  w.drop(bob, ids[4]);
  w.settle();
  CHECK(w.at[alice].idle());
  CHECK(w.at[bob].idle());
  CHECK(w.give(owner, alice, ids[0]).held());
  w.lose(owner);  // what it gave is forgotten with it
  w.drop(alice, ids[0]);
  CHECK(w.at[alice].idle());
}

TEST_CASE("rref ledger: hand-overs of what its owner never answers are bounded, and typed") {
  // The user created it; its owner hands it back again and again, and says nothing else.
  ledger_limits limits;
  limits.unsettled_per_peer = 3;
  ledger user(1, 3, limits);
  outputs out;
  const auto made = user.create_remote(0);
  REQUIRE(made);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    CHECK(user.transfer_in(0, {made->id, n}, out)->held());
    CHECK(user.imported(made->id)->waiting == n);
  }
  CHECK(out.messages.empty());
  for (std::uint64_t n = 4; n <= 100; ++n) {
    CHECK(user.transfer_in(0, {made->id, n}, out)->why == cause::too_many_imports);
  }
  CHECK(user.imported(made->id)->waiting == 3);
  CHECK(user.imported(made->id)->local_refs == 1 + 3);
  CHECK(out.messages.size() == 97);  // each was answered at once
  for (const auto& m : out.messages) CHECK(m.what.kind == message_kind::xack);
  out.clear();
  // Another peer has its own account, also of what this worker does not know yet.
  const rref_id foreign{0, 0, 9};
  for (std::uint64_t n = 1; n <= 3; ++n) CHECK(user.transfer_in(2, {made->id, n}, out)->held());
  CHECK(user.transfer_in(2, {foreign, 4}, out)->why == cause::too_many_imports);
  CHECK_FALSE(user.imported(foreign));
  out.clear();
  // The answer settles them, and there is room again.
  message added;
  added.kind = message_kind::added;
  added.id = made->id;
  added.sequence = made->sequence;
  CHECK(user.frame(0, added, out) == received::accepted);
  CHECK(out.messages.size() == 6);
  CHECK(user.imported(made->id)->waiting == 0);
  CHECK(user.transfer_in(2, {foreign, 5}, out)->held());
  CHECK(user.imported(foreign)->waiting == 1);
}

TEST_CASE("rref ledger: as many references as one creator may have on the way are promised" *
          doctest::test_suite("all")) {
  world w;
  const std::uint64_t many = ledger_limits().creation_window;
  std::vector<creation> made;
  for (std::uint64_t i = 0; i < many; ++i) {
    made.push_back(*w.at[alice].create_remote(owner));
    // Handed on before the request arrives; the third's add is faster.
    const auto t = w.at[alice].transfer_out(made.back().id, bob);
    REQUIRE(w.at[bob].transfer_in(alice, *t, w.out[bob])->held());
  }
  for (const auto& m : w.out[bob].messages) w.at[owner].frame(bob, m.what, w.out[owner]);
  CHECK(w.out[owner].messages.empty());  // all wait, none is refused
  CHECK(w.at[owner].counters().promised == many);
  for (const auto& c : made) {
    REQUIRE(w.at[owner].created(alice, c, w.out[owner]) == received::accepted);
  }
  CHECK(w.at[owner].counters().promised == 0);
  std::size_t answers = 0;
  for (const auto& m : w.out[owner].messages) answers += m.what.why == cause::none ? 1u : 0u;
  CHECK(answers == 2 * many);
}

TEST_CASE("rref ledger: a reference that its creator has yet to make is born broken there") {
  world w;
  // Bob invents what alice will create next, and one far ahead; alice alone can know that.
  for (const std::uint64_t serial : {1u, 2u, 7u}) {
    const auto got = w.at[alice].transfer_in(bob, {{owner, alice, serial}, serial}, w.out[alice]);
    REQUIRE(got.has_value());  // who hands it on may have been lied to itself
    CHECK(got->why == cause::lost);
    CHECK_FALSE(w.at[alice].imported({owner, alice, serial}).has_value());
  }
  CHECK(w.out[alice].messages.size() == 3);  // bob's pins are dropped; the owner hears nothing
  for (const auto& m : w.out[alice].messages) {
    CHECK(m.to == bob);
    CHECK(m.what.kind == message_kind::xack);
  }
  w.out[alice].clear();
  CHECK(w.at[alice].idle());
  // What alice then creates is hers alone.
  std::vector<rref_id> made;
  for (int i = 0; i < 3; ++i) made.push_back(w.remote_value());
  for (const auto& id : made) {
    CHECK(w.at[alice].imported(id)->local_refs == 1);
    CHECK(w.state(alice, id) == import_state::ok);
    CHECK(w.holders(id) == std::vector<rank>{alice});
  }
  // One that was made and let go may come back as long as somebody has it.
  CHECK(w.give(alice, bob, made[0]).held());
  w.settle();
  for (const auto& id : made) w.drop(alice, id);
  w.settle();
  CHECK(w.give(bob, alice, made[0]).held());
  w.settle();
  w.drop(bob, made[0]);
  w.drop(alice, made[0]);
  w.settle();
  w.nothing_left();
}

TEST_CASE("rref ledger: a broken import says when nothing refers to it any more") {
  world w;
  const auto c = w.at[alice].create_remote(owner);
  REQUIRE(w.at[alice].add_local_ref(c->id));
  w.at[alice].creation_dropped(c->id, w.out[alice]);
  w.drop(alice, c->id);
  const auto forgotten = [&] {
    return std::count_if(w.events[alice].begin(), w.events[alice].end(), [&](const event& e) {
      return e.kind == event_kind::forgotten && e.id == c->id;
    });
  };
  CHECK(forgotten() == 0);
  w.drop(alice, c->id);
  CHECK(forgotten() == 1);
  CHECK_FALSE(w.at[alice].imported(c->id).has_value());
}

TEST_CASE("rref ledger: messages that no correct peer sends are refused") {
  world w;
  const rref_id id = w.remote_value();
  const auto t = w.at[alice].transfer_out(id, bob);
  auto says = [&](rank to, rank from, message_kind kind, rref_id about, std::uint64_t sequence,
                  std::uint64_t number) {
    message m;
    m.kind = kind;
    m.id = about;
    m.sequence = sequence;
    m.transfer = number;
    return w.at[to].frame(from, m, w.out[to]);
  };
  const rref_id other{bob, alice, 1};
  CHECK(says(owner, alice, message_kind::add, other, 1, 0) == received::refused);
  CHECK(says(owner, alice, message_kind::del, other, 1, 0) == received::refused);
  CHECK(says(alice, bob, message_kind::added, id, 1, 0) == received::refused);
  CHECK(says(alice, bob, message_kind::deled, id, 1, 0) == received::refused);
  CHECK(says(alice, owner, message_kind::xack, id, 0, t->number) == received::refused);
  CHECK(says(alice, bob, message_kind::xack, other, 0, t->number) == received::refused);
  CHECK(says(alice, bob, message_kind::xack, id, 0, 77) == received::stale);
  CHECK(says(owner, 3, message_kind::add, id, 1, 0) == received::refused);
  CHECK(says(owner, owner, message_kind::add, id, 1, 0) == received::refused);
  CHECK(says(owner, alice, message_kind::add, {owner, 3, 1}, 1, 0) == received::refused);
  CHECK(w.at[owner].created(bob, {{owner, alice, 5}, 1}, w.out[owner]) == received::refused);
  CHECK(w.at[owner].created(alice, {{bob, alice, 5}, 1}, w.out[owner]) == received::refused);
  CHECK_FALSE(w.at[bob].transfer_in(alice, {{7, 0, 1}, 1}, w.out[bob]).has_value());
  CHECK_FALSE(w.at[bob].acquire(alice, id).has_value());
  CHECK_FALSE(w.at[alice].create_remote(9).has_value());
  // an id that its owner has not given out yet
  CHECK(w.at[owner].acquire(bob, {owner, owner, 50})->why == cause::lost);
  CHECK(w.at[alice].counters().pins == 1);
  CHECK(w.holders(id) == std::vector<rank>{alice});
  CHECK(w.at[owner].counters().refused == 7);

  w.at[alice].transfer_dropped(t->number, w.out[alice]);
  CHECK_FALSE(w.at[bob].drop_local_ref(id, w.out[bob]));
  w.drop(alice, id);
  w.settle();
  CHECK_FALSE(w.at[alice].drop_local_ref(id, w.out[alice]));
  CHECK_FALSE(w.at[owner].value_ready(id, w.out[owner]));
}

TEST_CASE("rref ledger: a leak report names what is held and by whom") {
  world w;
  const rref_id id = w.remote_value();
  w.give(alice, bob, id);
  CHECK(w.at[owner].describe() == "owned 0.1.1: ready, 0 local, 0 in hand-over, held by 1\n");
  CHECK(w.at[alice].describe() == "imported 0.1.1: ok, 1 local, 1 in hand-over, 0 to answer\n"
                                  "hand-over 1 of 0.1.1 to 2: unanswered\n");
  CHECK(w.at[bob].describe() ==
        "imported 0.1.1: registering, 1 local, 0 in hand-over, 1 to answer\n");
  w.settle();
  CHECK(w.at[bob].counters().sent[static_cast<std::size_t>(message_kind::xack)] == 1);
}

TEST_CASE("rref ledger wire: the bytes are little-endian and fixed") {
  message m;
  m.kind = message_kind::xack;
  m.id = {0x04030201, 0x08070605, 0x100f0e0d0c0b0a09};
  m.transfer = 0x1122;
  std::array<std::byte, message_bytes> bytes{};
  REQUIRE(encode(m, bytes));
  const std::array<unsigned, message_bytes> expected{
      4,  0,  0,  0,  1, 0, 0, 0, 1, 2, 3, 4, 5,    6,    7, 8, 9, 10, 11, 12,
      13, 14, 15, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0,  0,  0};
  for (std::size_t i = 0; i < message_bytes; ++i)
    CHECK(std::to_integer<unsigned>(bytes[i]) == expected[i]);
}

TEST_CASE("rref ledger wire: a damaged message is refused or is what it now says") {
  for (std::size_t kind = 0; kind < message_kinds; ++kind) {
    message m;
    m.kind = static_cast<message_kind>(kind);
    m.id = {1, 2, 3};
    if (m.kind == message_kind::xack)
      m.transfer = 5;
    else
      m.sequence = 4;
    std::array<std::byte, message_bytes> bytes{};
    REQUIRE(encode(m, bytes));
    CHECK(decode_message(bytes) == m);
    for (std::size_t n = 0; n < message_bytes; ++n) {
      CHECK_FALSE(decode_message(std::span(bytes).first(n)).has_value());
      std::array<std::byte, message_bytes> small{};
      CHECK_FALSE(encode(m, std::span(small).first(n)));
    }
    for (std::size_t bit = 0; bit < message_bytes * 8; ++bit) {
      auto flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const auto read = decode_message(flipped);
      if (!read) continue;
      CHECK_FALSE(*read == m);
      std::array<std::byte, message_bytes> again{};
      REQUIRE(encode(*read, again));
      CHECK(again == flipped);  // nothing is read that encode would not write
    }
  }
}

TEST_CASE("rref ledger wire: transfers and creations") {
  std::array<std::byte, transfer_bytes> bytes{};
  const transfer t{{1, 2, 3}, 4};
  REQUIRE(encode(t, bytes));
  CHECK(decode_transfer(bytes) == t);
  CHECK(decode_creation(bytes) == creation{{1, 2, 3}, 4});
  for (std::size_t n = 0; n < transfer_bytes; ++n) {
    CHECK_FALSE(decode_transfer(std::span(bytes).first(n)).has_value());
    CHECK_FALSE(decode_creation(std::span(bytes).first(n)).has_value());
  }
  bytes[8] = std::byte{0};  // serial 0
  CHECK_FALSE(decode_transfer(bytes).has_value());
  REQUIRE(encode(transfer{{1, 2, 3}, 0}, bytes));
  CHECK_FALSE(decode_transfer(bytes).has_value());
}

}  // namespace rref_ledger
