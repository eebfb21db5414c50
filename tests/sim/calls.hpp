// SPDX-License-Identifier: BSL-1.0
// A program of random calls for simulated worlds, and what must hold of them on every schedule.
#pragma once

#include <weft/core/event.hpp>
#include <weft/core/task_group.hpp>
#include <weft/engine/link/link.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/sim/world.hpp>

#include <asio/awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

/// What is known of one call.
struct seen_call {
  std::uint32_t from = 0, to = 0;
  const char* style = "";
  time_point began{};  // on its caller's clock
  time_point began_in_world{};
  time_point given_up{};      // in the world; zero: it was not
  duration limit{};           // zero: the default deadline
  duration paused_before{};   // its caller, when it began
  bool known_lost = false;    // rank 0 knew then that the callee is lost, and has told everybody
  bool must_succeed = false;  // but for faults
  bool of_main = false;       // it has its whole time, as nothing that it is part of ends
  bool linked = false;        // its link was up when it began
  bool awaited = true;        // somebody waits for its outcome
  bool carries = false;       // references, with which it is not taken back
  bool may_repeat = false;    // it is repeated, and idempotent
  int ran = 0;                // how often its function began
  int outcomes = 0;
  bool accepted = false;  // of a post
  bool finished = false;  // ... its function came to its end
  error failure{};        // of the outcome
  std::string broke{};    // what must not have been
};

/// All calls of a world, and the world. One at a time.
class witness {
 public:
  explicit witness(sim::world& of) : world(of) { current = this; }
  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;
  ~witness() { current = nullptr; }

  sim::world& world;
  std::deque<seen_call> calls;
  std::vector<std::uint32_t> mains_done, mains_threw;
  int inside = 0;                    // coroutines of functions and mains that live
  bool is_quiet_at_the_end = false;  // mains wait for each other, and then for silence
  bool wires_have_room = false;      // for all that a program sends
  bool may_miss_each_other = false;  // each of their connections may be refused
  /// Caller and callee of functions that end with the run only.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> something_stays;
  bool lacks_memory = false;  // at times, for what is not small
  duration longest_way{};     // from when something is written until it is handled
  duration faults_over{};     // from when on nothing goes wrong any more
  std::vector<std::string> broken;

  /// What makes a message so large that its memory may lack, if the world's may.
  [[nodiscard]] std::vector<std::uint64_t> ballast() const {
    return std::vector<std::uint64_t>(lacks_memory ? 200 : 0);
  }
  /// Whether that is so of each worker that lives.
  template <class So>
  [[nodiscard]] bool all_living(So&& so) const {
    for (std::uint32_t r = 0; r < world.size(); ++r) {
      if (world.at(r).alive() && !so(r)) return false;
    }
    return true;
  }
  [[nodiscard]] bool all_mains_done() const {
    return all_living([this](std::uint32_t r) {
      return std::find(mains_done.begin(), mains_done.end(), r) != mains_done.end();
    });
  }

  std::uint64_t begin(worker& me, std::uint32_t to, const char* style, duration limit,
                      bool awaited) {
    seen_call& c = calls.emplace_back();
    c.from = me.rank();
    c.to = to;
    c.style = style;
    c.began = me.time().now();
    c.began_in_world = world.now();
    c.limit = limit;
    c.paused_before = world.paused(me.rank());
    c.linked = world.at(c.from).worker().link_to(to).current_state() == weft::link::state::up;
    c.awaited = awaited;
    c.known_lost =
        world.crashed(to) && world.at(0).alive() &&
        world.now() - world.crashed_at(to) > lost_limit(c.from) + std::chrono::seconds(1) &&
        world.at(0).worker().link_to(to).current_state() == weft::link::state::down;
    world.tell(me.rank(), std::string("begins a call, ") + style + ", number", calls.size() - 1);
    return calls.size() - 1;
  }
  void runs(std::uint64_t id, std::uint32_t where) {
    world.tell(where, "runs call", id);
    if (id >= calls.size()) return complain("a function got an argument that nobody sent");
    seen_call& c = calls[id];
    ++c.ran;
    if (c.to != where) complain(describe(id) + " ran on worker " + std::to_string(where));
  }
  void ends(worker& me, std::uint64_t id, const expected<std::uint64_t>& result) {
    seen_call& c = calls[id];
    ++c.outcomes;
    if (!result) c.failure = result.error();
    if (!result && c.must_succeed && !may_be_missed(c, result.error()) && !world.faulty()) {
      complain(describe(id) + " failed, though nothing was wrong");
    }
    world.tell(me.rank(),
               result ? std::string("has its reply")
                      : std::string("fails: ") + result.error().code().message() + ", call",
               id);
    if (result && *result != id * 3 + 1) complain(describe(id) + " got another call's reply");
    // What waited for a link that never was has not left. (A future's own errors name no function.)
    if (!result && !c.carries && result.error().ran() == call_progress::maybe_executed &&
        !result.error().detail().function.empty() &&
        !world.at(c.from).worker().link_to(c.to).carried_posts().down) {
      complain(describe(id) + " may have run, it says, and was never written");
    }
    // The clocks of both ends may be off by a hundredth.
    if (c.of_main && !result && result.error() == errc::timed_out && !world.faulty() &&
        me.time().now() - c.began < c.limit - c.limit / 40) {
      complain(describe(id) + " timed out too early");
    }
    const duration late =
        since_deadline(me.rank(), c.began, c.limit > duration::zero() ? c.limit : default_limit(me),
                       c.paused_before);
    if (late > std::chrono::milliseconds(50)) {
      complain(describe(id) + " outlived its deadline by " +
               std::to_string(late / std::chrono::milliseconds(1)) + " ms");
    }
  }
  /// Of what has none of its own: what it is part of may end before, not later.
  [[nodiscard]] static duration default_limit(const worker& me) {
    return me.settings().call_deadline;
  }
  /// How long the deadline of what began then has passed on that worker, but for its pauses.
  [[nodiscard]] duration since_deadline(std::uint32_t rank, time_point began, duration limit,
                                        duration paused_before) const {
    const duration paused = world.paused(rank) - paused_before;
    // Its own clock may run a hundredth faster than the world.
    return world.at(rank).time().now() - (began + limit) - paused - paused / 90;
  }
  /// Of a plain function that begins: what its caller may make this worker keep.
  void check_bounds(worker& me, std::uint64_t id) {
    engine::link& from = world.at(me.rank()).worker().link_to(calls[id].from);
    if (from.current_state() != weft::link::state::up) return;
    const engine::link_counts now = from.count();
    const std::uint64_t most = me.settings().window_bytes;
    if (now.replies_unwritten > most) complain(describe(id) + " began in front of unread replies");
    // One request may be larger than what was left of the window.
    if (now.window_held > most + 20'000) complain(describe(id) + " began in front of too many");
  }
  /// Of a call that was awaited from its begin: where a callee is known to be gone nobody waits for
  /// a deadline.
  void ends_in_time(std::uint64_t id) {
    const seen_call& c = calls[id];
    if (!c.failure || world.was_cut() || !world.crashed(c.to)) return;
    const duration waited = world.now() - std::max(c.began_in_world, world.crashed_at(c.to));
    if (c.known_lost && waited > std::chrono::seconds(1)) {
      complain(describe(id) + " waited, though its worker had been told of the loss");
    }
    // Who was never met is missed at the rendezvous deadline only.
    if (waited > lost_limit(c.from) + world.at(c.from).worker().settings().rendezvous_deadline) {
      complain(describe(id) + " waited for " +
               std::to_string(waited / std::chrono::milliseconds(1)) + " ms for one that was lost");
    }
  }
  /// Within which a worker knows that another one is gone, but for cuts and pauses.
  [[nodiscard]] duration lost_limit(std::uint32_t rank) const {
    return world.at(rank).worker().settings().lost_after + std::chrono::seconds(1);
  }
  /// Whether the function of that call, which runs on `me` and would never end, should have been
  /// cancelled by now.
  [[nodiscard]] bool should_have_ended(worker& me, std::uint64_t id) const {
    const seen_call& c = calls[id];
    if (c.given_up != time_point{} && !world.faulty()) {
      return world.now() - c.given_up > std::chrono::seconds(2);  // behind much else, maybe
    }
    return world.crashed(c.from) && !world.was_cut() &&
           world.now() - world.crashed_at(c.from) > lost_limit(me.rank());
  }
  /// Whether there is such a function, either way.
  [[nodiscard]] bool something_stays_between(std::uint32_t a, std::uint32_t b) const {
    return std::any_of(something_stays.begin(), something_stays.end(), [&](const auto& two) {
      return two == std::pair(a, b) || two == std::pair(b, a);
    });
  }
  /// Nothing is under way any more, and nothing will be: what this worker still has of others. Where
  /// something went wrong, of those to whom both ends still have their link all of it, and of the
  /// lost what is this worker's alone.
  [[nodiscard]] std::string left_over(worker& me) const {
    std::string out;
    for (std::uint32_t r = 0; r < me.world_size(); ++r) {
      if (something_stays_between(me.rank(), r)) continue;
      const auto link_of = [this](std::uint32_t from, std::uint32_t to) -> engine::link& {
        return world.at(from).worker().link_to(to);
      };
      engine::link& mine = link_of(me.rank(), r);
      const bool lost = mine.current_state() == weft::link::state::down;
      // If it is not alive its run has failed, which is said at the end where nothing was wrong.
      engine::link* theirs = world.at(r).alive() ? &link_of(r, me.rank()) : nullptr;
      const bool both = theirs != nullptr &&
                        (!world.faulty() || (mine.current_state() == weft::link::state::up &&
                                             theirs->current_state() == weft::link::state::up));
      if (!both && !lost) continue;
      const engine::link_counts here = mine.count();
      const auto must = [&](bool so, const char* what, auto number) {
        if (so) return;
        out += "; worker" + std::to_string(me.rank()) + " has " + what + " of worker" +
               std::to_string(r) + ": " + std::to_string(number);
      };
      must(here.calls == 0, "calls", here.calls);
      must(here.served == 0, "requests", here.served);
      must(here.throttled == 0, "throttled requests", here.throttled);
      must(here.for_objects == 0, "requests for objects", here.for_objects);
      must(here.window_held == 0, "bytes of requests", here.window_held);
      must(here.budget_used == 0, "bytes of arguments", here.budget_used);
      if (!both) continue;  // the answers to a lost link are written to nobody
      must(here.answers_due == 0, "answers due", here.answers_due);
      must(here.replies_unwritten == 0, "bytes of replies", here.replies_unwritten);
      must(here.window_used == theirs->count().window_owed, "used the window, not owed,",
           here.window_used);
      must(mine.requests.sent == theirs->requests.finished, "sent requests, not finished,",
           mine.requests.sent.load());
    }
    return out;
  }
  /// Once the world is over.
  void check() {
    for (std::uint32_t r = 0; r < world.size() && !world.faulty(); ++r) {
      const bool missed = world.ended(r).message().find("rendezvous deadline") != std::string::npos;
      if (world.failed(r) && !(may_miss_each_other && missed)) {
        complain("nothing was wrong, and the run of worker" + std::to_string(r) +
                 " failed: " + world.ended(r).message());
      }
    }
    for (std::uint64_t id = 0; id < calls.size(); ++id) {
      const seen_call& c = calls[id];
      const auto must = [&](bool so, const char* what) {
        if (!so) complain(describe(id) + ": " + what);
      };
      must(c.ran <= 1 || c.may_repeat, "it ran twice");
      must(c.outcomes <= 1, "it had two outcomes");
      const bool all_well = ended_well(0) && ended_well(c.from) && ended_well(c.to);
      must(!c.accepted || c.finished || !all_well, "it was lost, and nobody says so");
      if (!c.awaited) continue;
      must(c.outcomes == 1 || world.crashed(c.from), "it had no outcome");
      if (c.outcomes != 1) continue;
      if (!c.failure) {
        must(c.ran >= 1, "it succeeded and did not run");
        continue;
      }
      if (c.failure == errc::remote_exception && !c.carries) {
        must(c.failure.ran() == call_progress::executed, "its function threw, and is not executed");
      }
      switch (c.failure.ran()) {
      case call_progress::not_sent:
        must(c.ran == 0, "not_sent, and it ran");
        break;
      case call_progress::not_executed:
        must(c.ran == 0, "not_executed, and it ran");
        break;
      case call_progress::executed:
        must(c.ran >= 1, "executed, and it did not run");
        break;
      case call_progress::maybe_executed:
        break;
      }
    }
    for (const std::uint32_t r : mains_threw) {
      if (!world.failed(r) && !world.crashed(r))
        complain("the main of worker" + std::to_string(r) + " was cancelled");
    }
    if (inside != 0) complain(std::to_string(inside) + " coroutines of functions are left");
  }
  /// As below, of that call: once its own link was up, only what it calls can be missed.
  [[nodiscard]] bool may_be_missed(const seen_call& c, const error& e) const {
    return may_be_missed(e) && (!c.linked || std::string_view(c.style) == "calls on");
  }
  /// Nothing needs to be wrong for that: each of their connections was refused.
  [[nodiscard]] bool may_be_missed(const error& e) const {
    return may_miss_each_other && e == errc::timed_out;
  }
  [[nodiscard]] bool ended_well(std::uint32_t rank) const {
    return !world.failed(rank) && !world.crashed(rank);
  }
  [[nodiscard]] std::string describe(std::uint64_t id) const {
    const seen_call& c = calls[id];
    return "call " + std::to_string(id) + " (" + c.style + ", worker" + std::to_string(c.from) +
           " to worker" + std::to_string(c.to) + ", within " +
           std::to_string(c.limit / std::chrono::microseconds(1)) + " us" +
           (c.failure ? ", " + c.failure.message() : std::string()) + ")";
  }
  void complain(std::string what) {
    if (broken.size() < 20) broken.push_back(std::move(what));
  }

  static thread_local witness* current;
};
inline thread_local witness* witness::current = nullptr;

/// Counts a coroutine that lives.
class inside_now {
 public:
  inside_now() : in_(witness::current) { ++in_->inside; }
  inside_now(const inside_now&) = delete;
  inside_now& operator=(const inside_now&) = delete;
  ~inside_now() { --in_->inside; }

 private:
  witness* in_;
};

/// Of a call whose outcome somebody waits for. If that coroutine ends by an exception before, it is
/// of its own, or the world's end, and nobody does.
class waits_for {
 public:
  explicit waits_for(std::uint64_t id)
      : in_(witness::current), id_(id), exceptions_(std::uncaught_exceptions()) {}
  waits_for(const waits_for&) = delete;
  waits_for& operator=(const waits_for&) = delete;
  ~waits_for() {
    seen_call& c = in_->calls[id_];
    if (c.outcomes == 0 && std::uncaught_exceptions() > exceptions_) c.awaited = false;
  }

 private:
  witness* in_;
  std::uint64_t id_;
  int exceptions_;
};

/// Of whoever waits: it has its outcome, or is destroyed, 50 ms after its deadline at the latest.
class must_end {
 public:
  /// `limit`: zero is the default deadline.
  must_end(worker& me, const char* what, duration limit = duration::zero())
      : in_(witness::current),
        where_(me.rank()),
        what_(what),
        began_(me.time().now()),
        limit_(limit > duration::zero() ? limit : witness::default_limit(me)),
        paused_before_(in_->world.paused(where_)) {}
  must_end(const must_end&) = delete;
  must_end& operator=(const must_end&) = delete;
  ~must_end() {
    const duration late = in_->since_deadline(where_, began_, limit_, paused_before_);
    if (late <= std::chrono::milliseconds(50)) return;
    in_->complain(std::string(what_) + " on worker " + std::to_string(where_) +
                  " outlived its deadline by " +
                  std::to_string(late / std::chrono::milliseconds(1)) + " ms");
  }

 private:
  witness* in_;
  std::uint32_t where_;
  const char* what_;
  time_point began_;
  duration limit_, paused_before_;
};
/// `work`, which must.
template <class T>
asio::awaitable<T> in_time(worker& me, const char* what, duration limit, asio::awaitable<T> work) {
  const must_end by_then(me, what, limit);
  co_return co_await std::move(work);
}

inline std::uint32_t draw(std::uint32_t among) {
  return witness::current->world.decide().pick(among);
}
/// 4 to 7 us times 2^0 to 2^16, that is up to 0.46 s.
inline duration draw_duration() {
  const std::uint32_t times = 4 + draw(4);  // one draw after the other, whatever the compiler
  return std::chrono::microseconds(times) * (1 << draw(17));
}

/// How much a main does: mostly little, as most of what goes wrong does so where a run begins or ends.
inline std::uint32_t draw_steps(std::uint32_t most) {
  return draw(4) == 3 ? draw(most + 1) : draw(4);
}

/// In virtual time. Throws system_error operation_aborted when cancelled.
inline asio::awaitable<void> sleep_for(worker& me, duration d) {
  auto over = make_intrusive<event>();
  const auto t = me.time().make_timer(weft::detail::context_of(me));
  t->arm(later(me.time().now(), d), [over] { over->set(); });
  co_await event::wait(over);
}

/// Behind a silence of all: no link, window or budget has anything left.
inline asio::awaitable<void> must_be_quiet(worker& me) {
  witness& w = *witness::current;
  const auto in_world = [&w] { return w.world.now() - sim::timeline::beginning; };
  // Who was refused, or is connected again, or woke up, may hear late of what it is sent, or who was
  // lost, and what it serves may wait for its deadline, and for what it calls then.
  const duration until = std::max(in_world(), w.faults_over) + 2 * me.settings().call_deadline +
                         me.settings().stall_limit + std::chrono::seconds(14);
  std::string left = w.left_over(me);
  const bool late = w.world.faulty() || w.may_miss_each_other;
  // bounded: by `until`
  while (late && !left.empty() && in_world() < until) {
    co_await sleep_for(me, std::chrono::milliseconds(20));
    left = w.left_over(me);
  }
  if (!left.empty()) w.complain("in silence" + left.substr(1));
}

// ── the functions ──

inline std::uint64_t on_pool(worker& me, std::uint64_t id) {
  witness::current->runs(id, me.rank());
  return id * 3 + 1;
}
inline std::uint64_t throws(worker& me, std::uint64_t id) {
  witness::current->runs(id, me.rank());
  throw std::runtime_error("a user's error");
}
asio::awaitable<std::uint64_t> at_once(worker& me, std::uint64_t id);
asio::awaitable<std::uint64_t> takes_time(worker& me, std::uint64_t id);
asio::awaitable<std::uint64_t> calls_on(worker& me, std::uint64_t id, std::uint32_t depth);
/// Until it is cancelled.
asio::awaitable<std::uint64_t> never_ends(worker& me, std::uint64_t id);
/// More than fits into a small window, and as much back.
std::vector<std::uint64_t> much(worker& me, std::uint64_t id, const std::vector<std::uint64_t>& in);
asio::awaitable<void> one_way(worker& me, std::uint64_t id);
/// A value whose codec throws where it is told to.
struct fragile {
  static constexpr std::string_view weft_structure = "weft::testing::fragile 1";
  enum class breaks : std::uint8_t { nowhere, written, read, written_back, read_back };
  std::uint64_t id = 0;
  breaks where = breaks::nowhere;
  bool is_reply = false;
  bool lacks_memory = false;  // it throws bad_alloc
};
void weft_encode(writer& w, const fragile& v);
fragile weft_decode(reader& r, std::type_identity<fragile>);
fragile give_back(worker& me, std::uint64_t id, fragile in);

// ── the program ──

/// One call of a style that is drawn, to a worker that is drawn, awaited to its end.
asio::awaitable<void> some_call(worker& me, std::uint32_t depth);
/// Waits for what was started as that call.
asio::awaitable<void> finish_started(worker& me, std::uint64_t id, future<std::uint64_t> f);
/// Until every main of a worker that lives has come here, and what they left behind has ended.
asio::awaitable<void> silence(worker& me);
/// Calls to everybody, which do not wait in vain.
asio::awaitable<void> afterwards(worker& me);
/// What each worker's main does.
asio::awaitable<void> some_program(worker& me, std::uint32_t steps);

}  // namespace weft::testing
