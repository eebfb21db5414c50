// SPDX-License-Identifier: BSL-1.0
// Random schedules of three or four ledgers over a network that delays, reorders and repeats
// control messages, loses workers and links between the living, and drops requests. After every
// step the invariants of ledger.hpp are checked against what really happened; at the end nothing
// may be left.
#include <weft/rref/ledger.hpp>

#include <doctest/doctest.h>

#include <core/run_all.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using weft::rref_id;
using weft::testing::rounds;
using namespace weft::rref_protocol;

namespace {

struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void hold(bool condition, const char* invariant, const rref_id& id = {}) {
  if (!condition) throw violation(std::string(invariant) + ", rref " + to_string(id));
}

class random_bits {
 public:
  explicit random_bits(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool chance(std::uint64_t percent) { return below(100) < percent; }

 private:
  std::uint64_t next() {  // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  std::uint64_t state_;
};

struct schedule {
  std::uint64_t seed;
  rank workers;
  bool fifo;         // per pair, as links are; otherwise anything may pass anything
  unsigned repeats;  // percent of control messages that come again
  unsigned crashes;  // how many workers are lost
  unsigned dropped;  // percent of requests that never leave
  unsigned cuts;     // how many links between two living workers are lost
  unsigned steps = 160;
  std::size_t max_ids = 10;
};

struct tally {  // what the schedules reached: a test that never gets there proves nothing
  std::uint64_t released = 0, stale = 0, promised = 0, lost = 0, owner_died = 0, creator_died = 0,
                cuts = 0, creation_failed = 0, overtaken = 0, uses = 0, reimported = 0;
};

class simulation {
 public:
  simulation(const schedule& plan, tally& seen) : plan_(plan), seen_(seen), random_(plan.seed) {
    for (rank r = 0; r < plan.workers; ++r) workers_.emplace_back(r, plan.workers);
  }

  void run() {
    unsigned crashes = plan_.crashes;
    unsigned cuts = plan_.cuts;
    for (unsigned i = 0; i < plan_.steps; ++i) {
      if (crashes != 0 && random_.chance(2)) {
        crash(any_worker());
        --crashes;
      } else if (cuts != 0 && random_.chance(3)) {
        cut(any_worker(), any_worker());
        --cuts;
      } else if (random_.chance(45)) {
        deliver_any();
      } else {
        act(any_worker());
      }
      audit();
    }
    drain();
  }

 private:
  enum class kind { control, create, transfer, use, reply, lost };
  struct flying {
    kind what = kind::control;
    rank from = 0, to = 0;
    message control;
    creation made;
    transfer given;
    rref_id id;
  };
  struct worker {
    worker(rank self, rank count) : book(self, count) {}
    ledger book;
    outputs out;
    bool alive = true;
    std::map<rref_id, unsigned> handles;  // what user code holds
    std::map<rref_id, unsigned> calls;    // of these: held until a reply
    std::set<rank> told;                  // who it knows to be lost
  };
  struct hand_over {
    rref_id id;
    rank from = 0, to = 0;
    bool arrived = false;
    bool done = false;  // arrived, and the receiver was registered since
  };

  rank any_worker() {
    // bounded: one worker always lives
    while (true) {
      const rank r = static_cast<rank>(random_.below(plan_.workers));
      if (workers_[r].alive) return r;
    }
  }
  std::optional<rref_id> any_handle(rank at) {
    auto& handles = workers_[at].handles;
    if (handles.empty()) return std::nullopt;
    auto it = handles.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_.below(handles.size())));
    return it->first;
  }
  void forget_handle(rank at, const rref_id& id) {
    auto& handles = workers_[at].handles;
    if (--handles.at(id) == 0) handles.erase(id);
  }

  // ---- what user code and requests do

  void act(rank at) {
    worker& w = workers_[at];
    switch (random_.below(9)) {
    case 0:
      make(at);
      break;
    case 1:
    case 2:
    case 3:
      if (const auto id = any_handle(at))
        give(at, static_cast<rank>(random_.below(plan_.workers)), *id);
      break;
    case 4:
    case 5:
      if (const auto id = any_handle(at); id && w.handles[*id] > w.calls[*id]) drop(at, *id);
      break;
    case 6:
      if (const auto id = any_handle(at)) {
        hold(w.book.add_local_ref(*id), "a handle can be copied", *id);
        ++w.handles[*id];
      }
      break;
    case 7:
      if (const auto id = any_handle(at)) use(at, *id);
      break;
    default:
      resolve_any();
      break;
    }
  }

  void make(rank at) {
    if (ids_.size() >= plan_.max_ids) return;
    worker& w = workers_[at];
    const rank owner = static_cast<rank>(random_.below(plan_.workers));
    if (owner == at && random_.chance(50)) {
      const rref_id id = w.book.create_local();
      ids_.push_back(id);
      ++w.handles[id];
      born_.insert(id);
      pending_.push_back(id);
      return;
    }
    const auto made = w.book.create_remote(owner);
    hold(made.has_value() != w.told.contains(owner), "create_remote refuses the lost only");
    if (!made) return;
    ids_.push_back(made->id);
    ++w.handles[made->id];
    if (random_.chance(plan_.dropped)) {
      to_drop_.push_back(*made);  // noticed later: the reference may be handed on until then
      return;
    }
    send({kind::create, at, owner, {}, *made, {}, made->id});
  }

  void notice_dropped(std::size_t which) {
    const creation made = to_drop_[which];
    to_drop_.erase(to_drop_.begin() + static_cast<std::ptrdiff_t>(which));
    const rref_id id = made.id;
    worker& w = workers_[id.creator];
    if (!w.alive) return;
    voided_.insert(id);
    if (id.owner == id.creator) born_.insert(id);
    w.book.creation_dropped(id, w.out);
    collect(id.creator);
  }

  void give(rank from, rank to, const rref_id& id) {
    worker& w = workers_[from];
    const auto t = w.book.transfer_out(id, to);
    if (!t) {
      const auto view = w.book.imported(id);
      hold(w.told.contains(to) || (view && view->state == import_state::broken),
           "a good handle can be handed over", id);
      return;
    }
    if (random_.chance(plan_.dropped)) {
      w.book.transfer_dropped(t->number, w.out);
      collect(from);
      return;
    }
    hand_overs_[{from, t->number}] = {id, from, to};
    send({kind::transfer, from, to, {}, {}, *t, id});
  }

  void drop(rank at, const rref_id& id) {
    worker& w = workers_[at];
    hold(w.book.drop_local_ref(id, w.out), "a handle can be dropped", id);
    forget_handle(at, id);
    collect(at);
  }

  // A call on the reference: the caller keeps its handle until the reply.
  void use(rank at, const rref_id& id) {
    const auto view = workers_[at].book.imported(id);
    if (id.owner == at || !view || view->state == import_state::broken) return;
    hold(workers_[at].book.add_local_ref(id), "a handle can be copied", id);
    ++workers_[at].handles[id];
    ++workers_[at].calls[id];
    send({kind::use, at, id.owner, {}, {}, {}, id});
  }

  void resolve_any() {
    if (!to_drop_.empty() && random_.chance(30))
      return notice_dropped(random_.below(to_drop_.size()));
    if (pending_.empty()) return;
    resolve(random_.below(pending_.size()));
  }
  void resolve(std::size_t which) {
    const rref_id id = pending_[which];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(which));
    worker& w = workers_[id.owner];
    if (!w.alive || voided_.contains(id)) return;
    hold(random_.chance(80) ? w.book.value_ready(id, w.out) : w.book.value_failed(id, w.out),
         "a pending value waits for its outcome", id);
    collect(id.owner);
  }

  // ---- the network

  void send(flying f) {
    if (!workers_[f.to].alive) return;  // the sender has not heard of it yet
    if (severed(f.from, f.to) && f.what != kind::lost) return;
    bag_.push_back(f);
  }

  void collect(rank at) {
    worker& w = workers_[at];
    for (const auto& m : w.out.messages) {
      hold(m.to != at, "no message to oneself", m.what.id);
      hold(!w.told.contains(m.to), "no message to the lost", m.what.id);
      if (m.what.kind == message_kind::del) check_deletion(at, m.what.id);
      send({kind::control, at, m.to, m.what, {}, {}, m.what.id});
    }
    for (const event& e : w.out.events) happen(at, e);
    w.out.clear();
  }

  // G2: a worker lets go only when all it handed over has arrived and is registered.
  void check_deletion(rank at, const rref_id& id) {
    for (const auto& [key, h] : hand_overs_)
      hold(h.from != at || h.id != id || resolved(h) || voided_.contains(id),
           "G2 a parent outlives its child's confirmation", id);
    hold(!workers_[at].handles.contains(id) || voided_.contains(id), "no deletion of what is held",
         id);
  }

  void happen(rank at, const event& e) {
    switch (e.kind) {
    case event_kind::released:
      hold(e.id.owner == at, "only the owner releases", e.id);
      hold(!workers_[at].handles.contains(e.id), "I1 no release under a handle", e.id);
      if (e.value == value_state::promised) return;
      hold(born_.contains(e.id) || !possible(e.id), "only what was made is released", e.id);
      hold(released_.insert(e.id).second, "I7 released once", e.id);
      ++seen_.released;
      return;
    case event_kind::failed:
      hold(!possible(e.id), "a promise is broken only by its creator", e.id);
      return;
    case event_kind::broken:
      hold(excused(at, e.id, e.why), "I4 nothing breaks without a fault of its own", e.id);
      count(e.why);
      return;
    case event_kind::forgotten:
      hold(!workers_[at].book.imported(e.id), "what is forgotten is gone", e.id);
      return;
    }
  }

  void count(cause why) {
    if (why == cause::lost) ++seen_.lost;
    if (why == cause::owner_died) ++seen_.owner_died;
    if (why == cause::creator_died) ++seen_.creator_died;
    if (why == cause::creation_failed) ++seen_.creation_failed;
  }

  // May the reference still be created?
  bool possible(const rref_id& id) const {
    return !voided_.contains(id) && workers_[id.creator].alive && !severed(id.creator, id.owner);
  }
  // `at`, whoever handed it to that one, and so on.
  std::set<rank> line_of(rank at, const rref_id& id) const {
    std::set<rank> line{at};
    for (bool more = true; more;) {  // bounded: by the number of workers
      more = false;
      for (const auto& [key, h] : hand_overs_)
        if (h.id == id && line.contains(h.to)) more = line.insert(h.from).second || more;
    }
    return line;
  }
  // May the reference be unusable at `at` for that reason? Only by a fault on the way that it took:
  // what breaks elsewhere is nothing to it.
  bool excused(rank at, const rref_id& id, cause why) const {
    switch (why) {
    case cause::lost: {
      // It was covered by whoever handed it on, until its receiver was registered: so one of them
      // died, lost the owner, which then forgot it, or lost its receiver, for which it then no
      // longer kept it.
      if (voided_.contains(id)) return true;
      const std::set<rank> line = line_of(at, id);
      for (const rank giver : line) {
        if (!workers_[giver].alive || severed(giver, id.owner)) return true;
        for (const auto& [key, h] : hand_overs_)
          if (h.id == id && h.from == giver && line.contains(h.to) && severed(giver, h.to))
            return true;
      }
      return false;
    }
    case cause::creation_failed:
      return voided_.contains(id);
    case cause::owner_died:
      return !workers_[id.owner].alive || severed(at, id.owner);
    case cause::creator_died:
      return !workers_[id.creator].alive || severed(id.creator, id.owner);
    default:
      return false;
    }
  }

  void deliver_any() {
    if (bag_.empty()) return;
    std::size_t which = random_.below(bag_.size());
    if (plan_.fifo) {  // the oldest of that pair
      const auto [from, to] = std::pair(bag_[which].from, bag_[which].to);
      // bounded: it is in the bag
      for (which = 0; bag_[which].from != from || bag_[which].to != to;) ++which;
    }
    const flying f = bag_[which];
    const bool again = f.what == kind::control && random_.chance(plan_.repeats);
    if (!again) bag_.erase(bag_.begin() + static_cast<std::ptrdiff_t>(which));
    deliver(f);
  }

  void deliver(const flying& f) {
    worker& w = workers_[f.to];
    switch (f.what) {
    case kind::control: {
      const received r = w.book.frame(f.from, f.control, w.out);
      hold(r != received::refused, "correct messages are not refused", f.id);
      if (r == received::stale) ++seen_.stale;
      if (f.control.kind == message_kind::add && f.control.transfer != 0 && r == received::stale)
        ++seen_.overtaken;
      break;
    }
    case kind::create: {
      const received r = w.book.created(f.from, f.made, w.out);
      hold(r == (w.told.contains(f.from) ? received::stale : received::accepted),
           "a creation is accepted from the living", f.id);
      if (r == received::accepted) {
        born_.insert(f.id);
        pending_.push_back(f.id);
      }
      break;
    }
    case kind::transfer: {
      const bool before = w.book.imported(f.id).has_value();
      const auto got = w.book.transfer_in(f.from, f.given, w.out);
      hold(got.has_value(), "a correct transfer is not refused", f.id);
      hold(got->held() || excused(f.to == f.id.owner ? f.from : f.to, f.id, got->why),
           "I4 no transfer is lost without a fault of its own", f.id);
      if (got->held()) ++w.handles[f.id];
      if (before) ++seen_.reimported;
      hand_overs_.at({f.from, f.given.number}).arrived = true;
      break;
    }
    case kind::use: {
      const auto got = w.book.acquire(f.from, f.id);
      hold(got.has_value(), "a correct use is not refused", f.id);
      hold(got->held() || excused(f.from, f.id, got->why), "I1 what is used is alive", f.id);
      if (got->held()) {
        ++seen_.uses;
        ++w.handles[f.id];
        if (w.book.value(f.id) == value_state::promised) ++seen_.promised;
      }
      send({kind::reply, f.to, f.from, {}, {}, {}, f.id});
      break;
    }
    case kind::reply:
      --w.calls[f.id];
      drop(f.to, f.id);
      break;
    case kind::lost:
      w.told.insert(f.from);
      w.book.peer_lost(f.from, w.out);
      break;
    }
    collect(f.to);
  }

  // Each link delivers a part of what was on it, then says that the peer is lost.
  void crash(rank gone) {
    unsigned living = 0;
    for (const worker& w : workers_) living += w.alive ? 1u : 0u;
    if (living < 3) return;
    workers_[gone].alive = false;
    workers_[gone].handles.clear();
    std::vector<flying> kept;
    std::set<rank> cut;
    for (const flying& f : bag_) {
      if (f.to == gone) continue;
      if (f.from == gone && f.what != kind::lost) {
        if (random_.chance(30)) {
          cut.insert(f.to);
          continue;
        }
        if (plan_.fifo && cut.contains(f.to)) continue;
      }
      kept.push_back(f);
    }
    bag_ = std::move(kept);
    for (rank r = 0; r < plan_.workers; ++r)
      if (workers_[r].alive) send({kind::lost, gone, r, {}, {}, {}, {}});
  }

  // The link between two that live on is lost: a part of what was on it arrives, and each of them
  // hears of the loss in its own time.
  void cut(rank a, rank b) {
    if (a == b || severed(a, b)) return;
    std::set<rank> ended;
    std::vector<flying> kept;
    for (const flying& f : bag_) {
      const bool on_it = (f.from == a && f.to == b) || (f.from == b && f.to == a);
      if (on_it && f.what != kind::lost) {
        if (random_.chance(30)) {
          ended.insert(f.to);
          continue;
        }
        if (plan_.fifo && ended.contains(f.to)) continue;
      }
      kept.push_back(f);
    }
    bag_ = std::move(kept);
    severed_.insert({a, b});
    send({kind::lost, a, b, {}, {}, {}, {}});
    send({kind::lost, b, a, {}, {}, {}, {}});
    ++seen_.cuts;
  }
  bool severed(rank a, rank b) const {
    return severed_.contains({a, b}) || severed_.contains({b, a});
  }

  // ---- the invariants

  bool resolved(const hand_over& h) const {
    if (h.done || !workers_[h.to].alive || !workers_[h.from].alive) return true;
    if (severed(h.from, h.to)) return true;
    if (!h.arrived) return false;
    if (h.to == h.id.owner || h.to == h.from) return true;
    const auto view = workers_[h.to].book.imported(h.id);
    return !view || view->state != import_state::registering;
  }

  void audit() {
    for (const rref_id& id : ids_) {
      const worker& owner = workers_[id.owner];
      if (owner.alive) {
        const auto view = owner.book.owned(id);
        hold(!view || !released_.contains(id), "I2 nothing comes back", id);
        if (view) {
          hold(view->value == value_state::pending || view->local_refs + view->pins != 0 ||
                   !view->holders.empty() || view->value == value_state::promised,
               "I6 what is kept has a reason", id);
          hold(view->rows < plan_.workers, "I6 one row for each other worker", id);
          for (const rank r : view->holders)
            hold(!owner.told.contains(r), "I5 a lost worker holds nothing", id);
          const auto it = owner.handles.find(id);
          hold(view->local_refs == (it == owner.handles.end() ? 0 : it->second),
               "local references are counted", id);
        } else {
          hold(!owner.handles.contains(id), "I1 a handle at the owner is alive", id);
        }
      }
      for (rank r = 0; r < plan_.workers; ++r) {
        const worker& w = workers_[r];
        if (!w.alive || r == id.owner) continue;
        const auto view = w.book.imported(id);
        if (!view) {
          hold(!w.handles.contains(id), "a handle has an entry", id);
          continue;
        }
        const auto it = w.handles.find(id);
        hold(view->local_refs == (it == w.handles.end() ? 0 : it->second),
             "local references are counted", id);
        if (view->state == import_state::ok)
          hold(!owner.alive || severed(r, id.owner) || owner.book.value(id).has_value(),
               "I1 no dangling", id);
        if (view->state == import_state::broken)
          hold(excused(r, id, view->why), "I4 nothing breaks without a fault of its own", id);
        if (w.told.contains(id.owner))
          hold(view->state == import_state::broken, "I5 a lost owner's imports are broken", id);
        if (it != w.handles.end() && view->state == import_state::releasing)
          hold(false, "no release under a handle", id);
      }
    }
    for (auto& [key, h] : hand_overs_) {
      h.done = resolved(h);
      if (h.done) continue;
      const worker& from = workers_[h.from];
      if (h.id.owner == h.from) {
        const auto view = from.book.owned(h.id);
        hold(view && view->pins != 0, "I3 the sender still has it", h.id);
      } else {
        const auto view = from.book.imported(h.id);
        hold(view && view->pins != 0 && view->state != import_state::releasing,
             "I3 the sender still has it", h.id);
      }
    }
  }

  void drain() {
    // bounded: each turn takes away one of what is left
    while (true) {
      if (!to_drop_.empty()) {
        notice_dropped(0);
      } else if (!bag_.empty()) {
        std::size_t which = plan_.fifo ? 0 : random_.below(bag_.size());
        const flying f = bag_[which];
        bag_.erase(bag_.begin() + static_cast<std::ptrdiff_t>(which));
        deliver(f);
      } else if (!pending_.empty()) {
        resolve(0);
      } else {
        bool dropped = false;
        for (rank r = 0; r < plan_.workers && !dropped; ++r) {
          if (const auto id = any_handle(r)) {
            drop(r, *id);
            dropped = true;
          }
        }
        if (!dropped) break;
      }
      audit();
    }
    for (const worker& w : workers_) {
      if (!w.alive) continue;
      const std::string left = w.book.describe();
      if (!w.book.idle()) throw violation("I5 something leaked: " + left);
      const auto c = w.book.counters();
      hold(c.holders == 0 && c.promised == 0 && c.owned == 0 && c.imports == 0 && c.pins == 0,
           "gauges return to zero");
      hold(c.created == c.released, "what was made was released");
      hold(c.refused == 0, "nothing was refused");
    }
    for (const rref_id& id : born_)
      if (workers_[id.owner].alive)
        hold(released_.contains(id), "G1 the owner heard of every deletion", id);
  }

  schedule plan_;
  tally& seen_;
  random_bits random_;
  std::deque<worker> workers_;
  std::vector<flying> bag_;
  std::vector<rref_id> ids_;
  std::vector<rref_id> pending_;
  std::vector<creation> to_drop_;
  std::set<rref_id> born_, released_, voided_;
  std::map<std::pair<rank, std::uint64_t>, hand_over> hand_overs_;
  std::set<std::pair<rank, rank>> severed_;
};

tally play_all(std::uint64_t first, std::uint64_t count, unsigned crashes, unsigned dropped,
               unsigned cuts = 0) {
  tally seen;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    schedule plan{.seed = seed,
                  .workers = static_cast<rank>(3 + seed % 2),
                  .fifo = seed % 3 == 0,
                  .repeats = seed % 5 == 0 ? 0u : 25u,
                  .crashes = crashes,
                  .dropped = dropped,
                  .cuts = cuts};
    if (seed % 5 == 1) {  // one much used reference: old messages meet new registrations
      plan.repeats = 50;
      plan.max_ids = 1;
    }
    try {
      simulation(plan, seen).run();
    } catch (const violation& broken) {
      const std::string what = broken.what();
      FAIL("seed " << seed << ": " << what);
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("rref ledger model: without faults nothing breaks, dangles or leaks") {
  const tally seen = play_all(1, rounds(300, 3000), 0, 0);
  CHECK(seen.released > rounds(333, 5000));
  CHECK(seen.stale > rounds(66, 1000));
  CHECK(seen.uses > rounds(66, 1000));
  CHECK(seen.promised > rounds(6, 100));
  CHECK(seen.overtaken > rounds(6, 100));
  CHECK(seen.reimported > rounds(66, 1000));
  CHECK(seen.lost + seen.owner_died + seen.creator_died + seen.creation_failed == 0);
}

TEST_CASE("rref ledger model: requests that never leave break only what they would have made") {
  const tally seen = play_all(10001, rounds(150, 1500), 0, 20);
  CHECK(seen.released > rounds(66, 1000));
  CHECK(seen.creation_failed > rounds(6, 100));
  CHECK(seen.owner_died + seen.creator_died == 0);
}

TEST_CASE("rref ledger model: a lost worker's holdings are freed and its values are owner_died") {
  const tally seen = play_all(20001, rounds(300, 3000), 2, 5);
  CHECK(seen.released > rounds(66, 1000));
  CHECK(seen.owner_died > rounds(6, 100));
  CHECK(seen.creator_died > rounds(0, 10));
  CHECK(seen.lost > rounds(0, 10));
}

TEST_CASE("rref ledger model: a lost link frees what was held over it, and nothing else") {
  const tally seen = play_all(30001, rounds(300, 3000), 0, 5, 2);
  CHECK(seen.cuts > rounds(200, 3000));
  CHECK(seen.released > rounds(66, 1000));
  CHECK(seen.owner_died > rounds(6, 100));
  CHECK(seen.creator_died > rounds(0, 10));
  CHECK(seen.lost > rounds(0, 10));
}
