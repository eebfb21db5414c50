// SPDX-License-Identifier: BSL-1.0
// Every schedule of three ledgers and one reference, for a few hand-overs and uses: the network
// delays, reorders and repeats, and loses a worker or a link. What ledger.hpp promises is checked
// after every step against what really happened; at the end nothing may be left.
#include "core/explore.hpp"
#include <weft/rref/ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

using weft::rref_protocol::ledger;
using weft::rref_protocol::detail::owner_table;
using weft::rref_protocol::detail::user_table;
using sequence_set = weft::detail::sequence_set<std::uint64_t>;

template struct exploring::revealed<ledger, &ledger::sessions_, &ledger::owner_, &ledger::user_,
                                    &ledger::transfers_, &ledger::transfers_given_,
                                    &ledger::answers_>;
template struct exploring::revealed<weft::rref_protocol::detail::session_table,
                                    &weft::rref_protocol::detail::session_table::peers_>;
template struct exploring::revealed<owner_table, &owner_table::entries_>;
template struct exploring::revealed<user_table, &user_table::entries_>;
template struct exploring::revealed<sequence_set, &sequence_set::next_, &sequence_set::beyond_>;

namespace ledgers {

using exploring::encoder;
using exploring::hold;
using exploring::with_members;
using weft::rref_id;
using namespace weft::rref_protocol;

constexpr rank size = 3;
constexpr rank owner = 0;

/// A ledger that can be copied: a state, not a worker's.
struct book {
  explicit book(rank self) : is(self, size) {}
  book(const book& other) : is(other.is.self(), size) {
    with_members(is, [&](auto& sessions, auto& owned, auto& used, auto& transfers, auto& given,
                         auto& answers) {
      with_members(other.is,
                   [&](const auto& sessions_2, const auto& owned_2, const auto& used_2,
                       const auto& transfers_2, const auto& given_2, const auto& answers_2) {
                     sessions = sessions_2;
                     with_members(owned, [&](auto& mine) {
                       with_members(owned_2, [&](const auto& theirs) { mine = theirs; });
                     });
                     with_members(used, [&](auto& mine) {
                       with_members(used_2, [&](const auto& theirs) { mine = theirs; });
                     });
                     transfers = transfers_2;
                     given = given_2;
                     answers = answers_2;
                   });
    });
  }
  book& operator=(const book&) = delete;

  ledger is;
};

void encode(encoder& e, const detail::session& s) {
  const auto& [epoch, ended, created, promised, imports, unsettled, sequence, serial, unsent_from] =
      s;
  e << epoch << (ended ? 1 : 0) << promised << imports << unsettled << sequence << serial
    << unsent_from;
  with_members(created, [&](std::uint64_t next, const auto& beyond) {
    e << next;
    e.list(beyond);
  });
}
void encode(encoder& e, const std::vector<detail::settled>& all) {
  e.list(all, [&](const detail::settled& s) { e << s.sender << s.what.number; });
}
void encode(encoder& e, const ledger& l) {
  with_members(l, [&](const auto& sessions, const auto& owned, const auto& used,
                      const auto& transfers, std::uint64_t given, const auto& answers) {
    e << sessions.counters.created << sessions.counters.released << sessions.counters.refused
      << sessions.counters.holders << sessions.counters.promised;
    with_members(sessions, [&](const auto& peers) {
      e.list(peers, [&](const auto& peer) {
        e << peer.first;
        encode(e, peer.second);
      });
    });
    with_members(owned, [&](const auto& entries) {
      e << entries.size();
      entries.each([&](const rref_id&, const auto& o) {
        e << o.local << o.pins << static_cast<std::uint64_t>(o.value) << o.held
          << (o.unsent ? 1 : 0) << (o.promised_by ? 1 + *o.promised_by : 0);
        e.list(o.rows, [&](const auto& row) {
          const auto& [last, held, waits] = row.second;
          e << row.first << last << (held ? 1 : 0) << (waits ? 1 : 0);
        });
      });
    });
    with_members(used, [&](const auto& entries) {
      e << entries.size();
      entries.each([&](const rref_id&, const auto& u) {
        e << u.local << u.pins << static_cast<std::uint64_t>(u.state)
          << static_cast<std::uint64_t>(u.why) << (u.unsent ? 1 : 0) << (u.withdrawn ? 1 : 0)
          << u.sequence << (u.given_by ? 1 + *u.given_by : 0);
        encode(e, u.waiting);
      });
    });
    e << given;
    e.list(transfers, [&](const auto& t) { e << t.first << t.second.to; });
    encode(e, answers);
  });
}

/// How many of each may come.
struct plan {
  rank creator = owner;   // another one asks the owner for the value
  unsigned gives = 0;     // hand-overs, to any worker
  unsigned uses = 0;      // calls on the reference
  unsigned repeats = 0;   // a control message arrives again
  unsigned crashes = 0;   // a worker is lost
  unsigned cuts = 0;      // a link is lost
  unsigned unsent = 0;    // the request that makes the value never leaves
  unsigned unpaid = 0;    // a payload with the reference never leaves
  bool in_order = false;  // on each link; else anything may pass anything
};

struct world {
  enum class act : std::uint8_t {
    deliver,
    notice_loss,  // at b, of a and of all that was on its way
    send_create,
    resolve,
    drop,
    give,  // from here on: may come, or not
    use,
    repeat,
    keep_create,
    keep_payload,
    crash,
    cut
  };
  struct move {
    act what;
    rank a = 0;
    rank b = 0;
    std::uint32_t which = 0;
  };
  enum class kind : std::uint8_t { control, create, transfer, use, reply };
  struct flying {
    kind what = kind::control;
    message control{};
    std::uint64_t number = 0;
  };
  struct hand_over {
    rank to = 0;
    bool arrived = false;
    bool done = false;  // arrived, and the receiver was registered since
  };
  struct worker {
    bool alive = true;
    unsigned handles = 0;  // what user code holds
    unsigned calls = 0;    // of these: held until a reply
    unsigned told = 0;     // who it knows to be lost, as bits
  };
  enum class making : std::uint8_t { unsent, on_its_way, pending, over };

  explicit world(const plan& p) : rules(p) {
    for (rank r = 0; r < size; ++r) books.emplace_back(std::in_place, r);
    for (rank i = 0; i < size * size; ++i) wires.emplace_back(std::in_place);
    at[p.creator].handles = 1;
    if (p.creator == owner) {
      id = books[owner].change().is.create_local();
      value = making::pending;
      born = true;
    } else {
      made = *books[p.creator].change().is.create_remote(owner);
      id = made.id;
    }
  }

  // ── moves ──

  static bool optional(const move& m) { return m.what >= act::give; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (rank a = 0; a < size; ++a) {
      for (rank b = 0; b < size; ++b) {
        if (!at[b].alive || tells(b, a)) continue;
        const auto& queue = wire(a, b);
        const std::size_t open =
            rules.in_order ? std::min<std::size_t>(1, queue.size()) : queue.size();
        for (std::uint32_t i = 0; i < open; ++i) {
          out.push_back({act::deliver, a, b, i});
          if (rules.repeats > 0 && queue[i].what == kind::control) {
            out.push_back({act::repeat, a, b, i});
          }
        }
        if (a != b && (!at[a].alive || severed(a, b))) {
          out.push_back({act::notice_loss, a, b});
        }
      }
      if (!at[a].alive) continue;
      if (at[a].handles > at[a].calls) out.push_back({act::drop, a});
      add_optional(a, out);
    }
    if (value == making::unsent && at[rules.creator].alive) {
      out.push_back({act::send_create});
      if (rules.unsent > 0) out.push_back({act::keep_create});
    }
    if (value == making::pending && at[owner].alive) out.push_back({act::resolve});
    return out;
  }
  void add_optional(rank a, std::vector<move>& out) const {
    if (rules.crashes > 0) out.push_back({act::crash, a});
    for (rank b = 0; b < size; ++b) {
      if (rules.cuts > 0 && a < b && at[b].alive && !severed(a, b)) out.push_back({act::cut, a, b});
      if (at[a].handles == 0) continue;
      if (rules.gives > 0) out.push_back({act::give, a, b});
      if (rules.gives > 0 && rules.unpaid > 0) out.push_back({act::keep_payload, a, b});
    }
    if (rules.uses == 0 || at[a].handles == 0 || a == owner) return;
    const auto view = books[a]->is.imported(id);
    if (view && view->state != import_state::broken) out.push_back({act::use, a});
  }
  std::string name(const move& m) const {
    static constexpr std::array<const char*, 12> words{"arrives",
                                                       "hears that the first is lost",
                                                       "the request leaves",
                                                       "the value is made",
                                                       "drops",
                                                       "hands over",
                                                       "uses",
                                                       "arrives, and stays",
                                                       "the request never leaves",
                                                       "hands over, but that never leaves",
                                                       "is lost",
                                                       "link is lost"};
    std::string out = std::to_string(m.a) + "," + std::to_string(m.b) + ": " +
                      words[static_cast<std::size_t>(m.what)];
    if (m.what != act::deliver && m.what != act::repeat) return out;
    const flying& f = wire(m.a, m.b)[m.which];
    static constexpr std::array<const char*, 5> kinds{"", "CREATE", "TRANSFER", "use", "reply"};
    if (f.what != kind::control) return out + ": " + kinds[static_cast<std::size_t>(f.what)];
    return out + ": " + std::string(to_string(f.control.kind)) + " " +
           std::to_string(f.control.sequence) + "/" + std::to_string(f.control.transfer);
  }

  void make(const move& m) {
    switch (m.what) {
    case act::deliver: {
      auto& queue = wires[m.a * size + m.b].change();
      const flying f = queue[m.which];
      queue.erase(queue.begin() + m.which);
      deliver(m.a, m.b, f);
      break;
    }
    case act::repeat:
      --rules.repeats;
      deliver(m.a, m.b, flying(wire(m.a, m.b)[m.which]));
      break;
    case act::notice_loss:
      clear(m.a, m.b);
      at[m.b].told |= 1u << m.a;
      if (m.a == owner) at[m.b].calls = 0;
      books[m.b].change().is.peer_lost(m.a, said);
      collect(m.b);
      break;
    case act::send_create:
      value = making::on_its_way;
      books[rules.creator].change().is.creation_sent(id);
      send(rules.creator, owner, {kind::create});
      break;
    case act::keep_create:
      --rules.unsent;
      value = making::over;
      voided = true;
      books[rules.creator].change().is.creation_dropped(id, said);
      collect(rules.creator);
      break;
    case act::resolve:
      value = making::over;
      hold(books[owner].change().is.value_ready(id, said), "a pending value waits for its outcome");
      collect(owner);
      break;
    case act::drop:
      drop(m.a);
      break;
    case act::give:
    case act::keep_payload:
      give(m.a, m.b, m.what == act::give);
      break;
    case act::use:
      --rules.uses;
      hold(books[m.a].change().is.add_local_ref(id), "a handle can be copied");
      ++at[m.a].handles;
      ++at[m.a].calls;
      send(m.a, owner, {kind::use});
      break;
    case act::crash:
      --rules.crashes;
      at[m.a] = {.alive = false};
      for (rank r = 0; r < size; ++r) clear(r, m.a);
      break;
    case act::cut:
      --rules.cuts;
      severed_ |= 1u << (m.a + m.b);
      break;
    }
    for (auto& [key, h] : hand_overs) h.done = resolved(key.first, h);
  }

  // ── what is promised ──

  void audit() const {
    if (at[owner].alive) audit_owner();
    for (rank r = 0; r < size; ++r) {
      if (r != owner && at[r].alive) audit_user(r);
    }
    for (const auto& [key, h] : hand_overs) {
      if (h.done) continue;
      const rank from = key.first;
      if (from == owner) {
        const auto view = books[from]->is.owned(id);
        hold(view && view->pins != 0, "I3 the sender still has it:", from);
      } else {
        const auto view = books[from]->is.imported(id);
        hold(view && view->pins != 0 && view->state != import_state::releasing,
             "I3 the sender still has it:", from);
      }
    }
  }
  void audit_owner() const {
    const auto view = books[owner]->is.owned(id);
    if (!view) return hold(at[owner].handles == 0, "I1 a handle at the owner is alive");
    hold(!released, "I2 nothing comes back");
    hold(view->value == value_state::pending || view->value == value_state::promised ||
             view->local_refs + view->pins != 0 || !view->holders.empty(),
         "I6 what is kept has a reason");
    hold(view->rows < size, "I6 one row for each other worker");
    for (const rank r : view->holders) hold(!tells(owner, r), "I5 a lost worker holds nothing", r);
    hold(view->local_refs == at[owner].handles, "local references are counted");
  }
  void audit_user(rank r) const {
    const auto view = books[r]->is.imported(id);
    if (!view) return hold(at[r].handles == 0, "a handle has an entry, at", r);
    hold(view->local_refs == at[r].handles, "local references are counted, at", r);
    if (view->state == import_state::ok) {
      hold(!at[owner].alive || severed(r, owner) || books[owner]->is.value(id),
           "I1 no dangling, at", r);
    }
    if (view->state == import_state::broken) {
      hold(excused(r, view->why), "I4 nothing breaks without a fault of its own, at", r);
    }
    if (tells(r, owner)) {
      hold(view->state == import_state::broken, "I5 a lost owner's imports are broken, at", r);
    }
    hold(at[r].handles == 0 || view->state != import_state::releasing,
         "no release under a handle, at", r);
  }
  void finish() const {
    for (rank r = 0; r < size; ++r) {
      if (!at[r].alive) continue;
      const ledger& l = books[r]->is;
      if (!l.idle())
        throw exploring::broken("I5 something leaked at " + std::to_string(r) + ": " +
                                l.describe());
      const auto c = l.counters();
      hold(c.holders == 0 && c.promised == 0, "gauges return to zero, at", r);
      hold(c.created == c.released, "what was made was released, at", r);
      hold(c.refused == 0, "nothing was refused, at", r);
    }
    hold(!born || !at[owner].alive || released, "G1 the owner heard of every deletion");
  }

  void encode(encoder& e) const {
    e << rules.gives << rules.uses << rules.repeats << rules.crashes << rules.cuts << rules.unsent
      << rules.unpaid << severed_ << static_cast<std::uint64_t>(value) << (born ? 1 : 0)
      << (released ? 1 : 0) << (voided ? 1 : 0);
    for (rank r = 0; r < size; ++r) {
      e << (at[r].alive ? 1 : 0) << at[r].handles << at[r].calls << at[r].told;
      if (at[r].alive) ledgers::encode(e, books[r]->is);
    }
    e.list(hand_overs, [&](const auto& h) {
      e << h.first.first << h.first.second << h.second.to << (h.second.arrived ? 1 : 0)
        << (h.second.done ? 1 : 0);
    });
    for (const auto& queue : wires) {
      std::uint64_t sum = 0;  // where anything may pass anything, the order says nothing
      for (const flying& f : *queue) {
        encoder one;
        one << static_cast<std::uint64_t>(f.what) << f.number
            << static_cast<std::uint64_t>(f.control.kind)
            << static_cast<std::uint64_t>(f.control.why) << f.control.sequence
            << f.control.transfer;
        if (rules.in_order) {
          e << one.done().low;
        } else {
          sum += one.done().low;
        }
      }
      e << queue->size() << sum;
    }
  }

 private:
  const std::vector<flying>& wire(rank from, rank to) const { return *wires[from * size + to]; }
  void clear(rank from, rank to) {
    if (!wire(from, to).empty()) wires[from * size + to].change().clear();
  }
  [[nodiscard]] bool tells(rank who, rank of) const { return (at[who].told >> of & 1u) != 0; }
  /// Two ranks are told from others by their sum.
  [[nodiscard]] bool severed(rank a, rank b) const { return (severed_ >> (a + b) & 1u) != 0; }

  void send(rank from, rank to, const flying& f) {
    if (!at[to].alive || tells(from, to)) return;  // or the sender has not heard of it yet
    wires[from * size + to].change().push_back(f);
  }
  void drop(rank who) {
    hold(books[who].change().is.drop_local_ref(id, said), "a handle can be dropped, at", who);
    --at[who].handles;
    collect(who);
  }
  void give(rank from, rank to, bool leaves) {
    --rules.gives;
    const auto t = books[from].change().is.transfer_out(id, to);
    if (!t) {
      const auto view = books[from]->is.imported(id);
      return hold(tells(from, to) || (view && view->state == import_state::broken),
                  "a good handle can be handed over, by", from);
    }
    if (!leaves) {
      --rules.unpaid;
      books[from].change().is.transfer_dropped(t->number, said);
      return collect(from);
    }
    hand_overs[{from, t->number}] = {to};
    send(from, to, {kind::transfer, {}, t->number});
  }

  void deliver(rank from, rank to, const flying& f) {
    ledger& l = books[to].change().is;
    switch (f.what) {
    case kind::control:
      hold(l.frame(from, f.control, said) != received::refused, "correct messages are not refused");
      break;
    case kind::create:
      hold(l.created(from, made, said) == received::accepted, "a creation is accepted");
      born = true;
      value = making::pending;
      break;
    case kind::transfer: {
      const auto got = l.transfer_in(from, {id, f.number}, said);
      hold(got.has_value(), "a correct transfer is not refused");
      hold(got->held() || excused(to == owner ? from : to, got->why),
           "I4 no transfer is lost without a fault of its own, at", to);
      if (got->held()) ++at[to].handles;
      hand_overs.at({from, f.number}).arrived = true;
      break;
    }
    case kind::use: {
      const auto got = l.acquire(from, id);
      hold(got.has_value(), "a correct use is not refused");
      hold(got->held() || excused(from, got->why), "I1 what is used is alive");
      if (got->held()) ++at[to].handles;
      send(to, from, {kind::reply});
      break;
    }
    case kind::reply:
      --at[to].calls;
      return drop(to);
    }
    collect(to);
  }

  void collect(rank who) {
    for (const auto& m : std::exchange(said.messages, {})) {
      hold(m.to != who, "no message to oneself");
      hold(!tells(who, m.to), "no message to the lost");
      if (m.what.kind == message_kind::del) check_deletion(who);
      send(who, m.to, {kind::control, m.what});
    }
    for (const event& e : std::exchange(said.events, {})) happen(who, e);
  }
  void check_deletion(rank who) const {
    for (const auto& [key, h] : hand_overs) {
      hold(key.first != who || resolved(who, h) || voided,
           "G2 a parent outlives its child's confirmation:", who);
    }
    hold(at[who].handles == 0 || voided, "no deletion of what is held, by", who);
  }
  void happen(rank who, const event& e) {
    switch (e.kind) {
    case event_kind::released:
      hold(who == owner && at[owner].handles == 0, "I1 no release under a handle");
      if (e.value == value_state::promised) return;
      hold(born || !possible(), "only what was made is released");
      hold(!std::exchange(released, true), "I7 released once");
      return;
    case event_kind::failed:
      return hold(!possible(), "a promise is broken only by its creator");
    case event_kind::broken:
      return hold(excused(who, e.why), "I4 nothing breaks without a fault of its own, at", who);
    case event_kind::forgotten:
      return hold(!books[who]->is.imported(id), "what is forgotten is gone, at", who);
    }
  }

  /// May the reference still be made?
  [[nodiscard]] bool possible() const {
    return !voided && at[rules.creator].alive && !severed(rules.creator, owner);
  }
  [[nodiscard]] bool resolved(rank from, const hand_over& h) const {
    if (h.done || !at[h.to].alive || !at[from].alive || severed(from, h.to)) return true;
    if (!h.arrived) return false;
    if (h.to == owner || h.to == from) return true;
    const auto view = books[h.to]->is.imported(id);
    return !view || view->state != import_state::registering;
  }
  /// `who`, whoever handed it to that one, and so on, as bits.
  [[nodiscard]] unsigned line_of(rank who) const {
    unsigned line = 1u << who;
    for (rank i = 0; i < size; ++i) {
      for (const auto& [key, h] : hand_overs) {
        if ((line >> h.to & 1u) != 0) line |= 1u << key.first;
      }
    }
    return line;
  }
  /// May it be unusable at `who` for that reason? Only by a fault on the way that it took.
  [[nodiscard]] bool excused(rank who, cause why) const {
    switch (why) {
    case cause::lost: {
      if (voided) return true;
      const unsigned line = line_of(who);
      for (rank giver = 0; giver < size; ++giver) {
        if ((line >> giver & 1u) == 0) continue;
        if (!at[giver].alive || severed(giver, owner)) return true;
        for (const auto& [key, h] : hand_overs) {
          if (key.first == giver && (line >> h.to & 1u) != 0 && severed(giver, h.to)) return true;
        }
      }
      return false;
    }
    case cause::creation_failed:
      return voided;
    case cause::owner_died:
      return !at[owner].alive || severed(who, owner);
    case cause::creator_died:
      return !at[rules.creator].alive || severed(rules.creator, owner);
    default:
      return false;
    }
  }

  plan rules;
  std::vector<exploring::shared<book>> books;
  std::vector<exploring::shared<std::vector<flying>>> wires;
  std::array<worker, size> at{};
  std::map<std::pair<rank, std::uint64_t>, hand_over> hand_overs;
  outputs said;  // empty between moves
  creation made{};
  rref_id id{};
  making value = making::unsent;
  unsigned severed_ = 0;
  bool born = false;
  bool released = false;
  bool voided = false;
};

TEST_CASE("rref ledger explored: messages that pass each other and come again") {
  exploring::explore("a value of the owner", world({.gives = 2, .repeats = 1}), 200'000);
  exploring::explore("a value for another", world({.creator = 1, .gives = 2}), 200'000);
  exploring::explore("a value for another, and repetitions",
                     world({.creator = 1, .gives = 1, .uses = 1, .repeats = 2}), 200'000);
}

TEST_CASE("rref ledger explored: links in order") {
  exploring::explore("a value of the owner", world({.gives = 3, .in_order = true}), 200'000);
  exploring::explore("a value for another",
                     world({.creator = 1, .gives = 1, .uses = 1, .in_order = true}), 200'000);
}

TEST_CASE("rref ledger explored: what never leaves") {
  exploring::explore("a request", world({.creator = 1, .gives = 2, .unsent = 1}), 200'000);
  exploring::explore("a payload", world({.creator = 1, .gives = 2, .unpaid = 1}), 200'000);
}

TEST_CASE("rref ledger explored: a worker is lost at any moment") {
  exploring::explore("a value of the owner", world({.gives = 2, .crashes = 1}), 200'000);
  exploring::explore("a value for another",
                     world({.creator = 1, .gives = 2, .crashes = 1, .in_order = true}), 200'000);
}

TEST_CASE("rref ledger explored: a link is lost at any moment") {
  exploring::explore("a value of the owner", world({.gives = 2, .cuts = 1, .in_order = true}),
                     200'000);
  exploring::explore("a value for another", world({.creator = 1, .gives = 1, .cuts = 1}), 200'000);
}

TEST_CASE("rref ledger explored: more of everything" * doctest::skip(!exploring::widely())) {
  exploring::explore("a value of the owner, three hand-overs, a use",
                     world({.gives = 3, .uses = 1, .in_order = true}), 200'000);
  exploring::explore("two hand-overs, a use, a repetition",
                     world({.gives = 2, .uses = 1, .repeats = 1}), 200'000);
  exploring::explore("three hand-overs", world({.creator = 1, .gives = 3}), 200'000);
  exploring::explore("two hand-overs, two repetitions",
                     world({.creator = 1, .gives = 2, .repeats = 2}), 200'000);
  exploring::explore("two hand-overs, a use, a request that may not leave",
                     world({.creator = 1, .gives = 2, .uses = 1, .unsent = 1}), 200'000);
  exploring::explore("two hand-overs, a link", world({.creator = 1, .gives = 2, .cuts = 1}),
                     200'000);
  exploring::explore("two hand-overs, a worker, a link",
                     world({.creator = 1, .gives = 2, .crashes = 1, .cuts = 1, .in_order = true}),
                     200'000);
}

}  // namespace ledgers
