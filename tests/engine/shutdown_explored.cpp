// SPDX-License-Identifier: BSL-1.0
// The end of a run of three workers, in every schedule: what may come between the steps of the
// protocol, what a lost worker or link takes with it, and when somebody notices.
#include "core/explore.hpp"
#include <weft/engine/shutdown/shutdown.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

template struct exploring::revealed<
    weft::engine::drain, &weft::engine::drain::round_, &weft::engine::drain::now_,
    &weft::engine::drain::before_, &weft::engine::drain::answered_, &weft::engine::drain::gone_,
    &weft::engine::drain::missing_, &weft::engine::drain::even_before_>;
template struct exploring::revealed<
    weft::engine::shutdown_protocol, &weft::engine::shutdown_protocol::done_,
    &weft::engine::shutdown_protocol::finished_, &weft::engine::shutdown_protocol::gone_,
    &weft::engine::shutdown_protocol::drain_, &weft::engine::shutdown_protocol::asked_,
    &weft::engine::shutdown_protocol::returned_, &weft::engine::shutdown_protocol::over_,
    &weft::engine::shutdown_protocol::told_, &weft::engine::shutdown_protocol::unconfirmed_verdict_,
    &weft::engine::shutdown_protocol::failure_, &weft::engine::shutdown_protocol::cuts_,
    &weft::engine::shutdown_protocol::accused_>;
template struct exploring::revealed<weft::engine::cut_links, &weft::engine::cut_links::all_>;

namespace run_ends {

using exploring::encoder;
using exploring::hold;
using weft::engine::cut_link;
using weft::engine::cut_links;
using weft::engine::drain;
using weft::engine::link_ends;
using weft::engine::peer_counts;
using weft::engine::shutdown_message;
using weft::engine::shutdown_protocol;
using weft::engine::work_report;
using rank = std::uint32_t;

constexpr rank size = 3;

/// How many of each may come, and without whom the run goes on.
struct plan {
  std::set<rank> may_go{};
  unsigned requests = 0;
  unsigned crashes = 0;  // a worker is lost
  unsigned cuts = 0;     // a link is lost
  unsigned throws = 0;   // a main fails
  unsigned hushes = 0;   // a worker whose main has returned does not listen until it is given up
  bool bears = false;    // no main fails because its calls to a lost worker do
  bool only_throws = false;
};

/// Ranks, as bits.
class ranks {
 public:
  void add(rank r) { bits_ |= 1u << r; }
  void remove(rank r) { bits_ &= ~(1u << r); }
  [[nodiscard]] bool contain(rank r) const { return (bits_ >> r & 1u) != 0; }
  [[nodiscard]] unsigned bits() const { return bits_; }

 private:
  unsigned bits_ = 0;
};

struct world {
  enum class act : std::uint8_t {
    deliver,      // a: from, b: to
    notice_loss,  // what was left on the way from a is lost, and b notices that
    finish,       // at a the oldest of its functions
    answer_main,  // the main of a returns
    ask_again,
    leave,
    wake,         // it listens again, when it was given up
    time_passes,  // nothing else happens
    request,      // from a to b
    throw_own,    // the main of a, or a handler after it
    throw_for,    // ... because of b
    crash,
    cut,
    hush
  };
  struct move {
    act what;
    rank a = 0;
    rank b = 0;
  };
  struct flight {
    enum class kind : std::uint8_t { control, request, closed } what = kind::control;
    shutdown_message control{};
  };
  enum class main_state : std::uint8_t { runs, returned, threw };
  struct worker {
    explicit worker(rank r) : protocol(r, size) {}
    shutdown_protocol protocol;
    main_state main = main_state::runs;
    bool alive = true;
    bool silent = false;
    bool said_done = false;  // its main returned
    bool ended = false;
    bool left = false;  // its links are closed
    ranks down;         // the links that are closed for it
    ranks deaf;         // ... of which nothing arrives any more
    ranks lost;         // whose loss it was told
    std::array<std::uint64_t, size> sent{};
    std::array<std::uint64_t, size> finished{};
    std::vector<rank> running;  // functions, by their callers
  };

  explicit world(const plan& p) : rules(p) {
    for (rank r = 0; r < size; ++r) {
      at.emplace_back(std::in_place, r);
      for (const rank who : p.may_go) at[r].change().protocol.may_go(who);
    }
    for (rank i = 0; i < size * size; ++i) wires.emplace_back(std::in_place);
  }

  // ── moves ──

  static bool optional(const move& m) { return m.what >= act::request; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (rank a = 0; a < size; ++a) {
      for (rank b = 0; b < size; ++b) {
        if (a == b || !hears(b, a)) continue;
        if (!wire(a, b).empty()) out.push_back({act::deliver, a, b});
        if (lossy(a, b) || at[b]->down.contain(a)) out.push_back({act::notice_loss, a, b});
      }
      const worker& w = *at[a];
      if (!w.alive || w.left) continue;
      if (w.ended) {
        if (a != 0 || others_left()) out.push_back({act::leave, a});
      } else if (!w.silent) {
        if (!w.running.empty()) out.push_back({act::finish, a});
        if (w.main == main_state::runs) out.push_back({act::answer_main, a});
        if (a == 0 && paused) out.push_back({act::ask_again});
      } else if (at[0]->ended || !at[0]->alive || at[0]->protocol.gone(a)) {
        out.push_back({act::wake, a});
      }
    }
    if (out.empty() && waits_for_time()) out.push_back({act::time_passes});
    add_optional(out);
    return out;
  }
  void add_optional(std::vector<move>& out) const {
    for (rank a = 0; a < size; ++a) {
      const worker& w = *at[a];
      if (!w.alive || w.left) continue;
      if (rules.crashes > 0) out.push_back({act::crash, a});
      for (rank b = a + 1; b < size && rules.cuts > 0; ++b) {
        if (at[b]->alive && !at[b]->left && !w.down.contain(b) && !at[b]->down.contain(a)) {
          out.push_back({act::cut, a, b});
        }
      }
      if (w.ended || w.silent) continue;
      if (rules.hushes > 0 && a != 0 && w.main == main_state::returned) {
        out.push_back({act::hush, a});
      }
      const bool main_runs = w.main == main_state::runs;
      if (rules.throws > 0) out.push_back({act::throw_own, a});
      const bool sends = rules.requests > 0 && (main_runs || !w.running.empty());
      for (rank b = 0; b < size; ++b) {
        if (b == a) continue;
        if (sends && !w.down.contain(b)) out.push_back({act::request, a, b});
        if (main_runs && !rules.bears && w.down.contain(b)) out.push_back({act::throw_for, a, b});
      }
    }
  }
  std::string name(const move& m) const {
    static constexpr std::array<const char*, 14> words{"arrives",
                                                       "notices that the rest is lost",
                                                       "finishes a function",
                                                       "main returns",
                                                       "asks again",
                                                       "leaves",
                                                       "listens",
                                                       "time passes",
                                                       "sends a request",
                                                       "main throws",
                                                       "main throws for",
                                                       "is lost",
                                                       "link is cut",
                                                       "falls silent"};
    std::string out = std::to_string(m.a) + "," + std::to_string(m.b) + ": " +
                      words[static_cast<std::size_t>(m.what)];
    if (m.what == act::deliver) {
      const flight& f = wire(m.a, m.b).front();
      out += f.what == flight::kind::control
                 ? ": control " + std::to_string(static_cast<int>(f.control.what)) + " about " +
                       std::to_string(f.control.rank)
             : f.what == flight::kind::request ? ": a request"
                                               : ": the end of the link";
    }
    return out;
  }

  void make(const move& m) {
    switch (m.what) {
    case act::deliver:
      return deliver(m.a, m.b);
    case act::notice_loss:
      return close_at(m.b, m.a);
    case act::finish: {
      worker& w = at[m.a].change();
      ++w.finished[w.running.front()];
      w.running.erase(w.running.begin());
      return;
    }
    case act::answer_main: {
      worker& w = at[m.a].change();
      w.main = main_state::returned;
      w.said_done = true;
      return act_on(m.a, w.protocol.main_returned());
    }
    case act::ask_again:
      paused = false;
      return act_on(0, at[0].change().protocol.ask_again());
    case act::leave:
      at[m.a].change().left = true;
      for (rank r = 0; r < size; ++r) {
        say_closed(m.a, r);
        clear(r, m.a);
      }
      return;
    case act::wake:
      at[m.a].change().silent = false;
      return;
    case act::time_passes:
      return time_passes();
    case act::request:
      --rules.requests;
      ++at[m.a].change().sent[m.b];
      wires[m.a * size + m.b].change().push_back({flight::kind::request, {}});
      return;
    case act::throw_own: {
      --rules.throws;
      guilty.add(m.a);
      worker& w = at[m.a].change();
      w.main = main_state::threw;
      const auto todo = w.protocol.main_failed(m.a, "boom");
      hold(w.protocol.over() && w.protocol.failure(), "whose main fails leaves its run", m.a);
      return act_on(m.a, todo);
    }
    case act::throw_for:
      judge(m.a, m.b);
      at[m.a].change().main = main_state::threw;
      return act_on(m.a, at[m.a].change().protocol.main_failed(m.b, "a call failed"));
    case act::crash:
      --rules.crashes;
      guilty.add(m.a);
      at[m.a].change().alive = false;
      for (rank r = 0; r < size; ++r) clear(r, m.a);
      return;
    case act::cut:
      --rules.cuts;
      if (m.a == 0) {  // each blames the other
        guilty.add(0);
        guilty.add(m.b);
      } else {
        guilty.add(rules.may_go.contains(m.a) && !rules.may_go.contains(m.b) ? m.a : m.b);
      }
      broken_.add(m.a + m.b);
      return;
    case act::hush:
      --rules.hushes;
      guilty.add(m.a);
      at[m.a].change().silent = true;
      return;
    }
  }

  // ── what is promised ──

  void audit() const {
    for (rank r = 0; r < size; ++r) {
      const worker& w = *at[r];
      if (!w.alive) continue;
      hold(w.ended == w.protocol.over(), "who is over leaves its run", r);
      const auto& failure = w.protocol.failure();
      hold(!failure || w.ended, "only an end has a reason", r);
      // Whom another accuses, as a link between them is lost, hears that.
      hold(!failure || guilty.contain(failure->first) ||
               (accused.contain(r) && failure->first == r),
           "who is well is not blamed, by", r);
    }
  }
  void finish() const {
    bool borne = true;  // all that happened
    for (rank r = 0; r < size; ++r) {
      if (guilty.contain(r)) borne = borne && rules.may_go.contains(r);
    }
    for (rank r = 0; r < size; ++r) {
      const worker& w = *at[r];
      if (!w.alive) continue;
      hold(w.ended && w.left, "everybody leaves", r);
      if (rules.only_throws && w.protocol.failure()) {
        hold(w.protocol.failure()->second == "boom", "everybody knows why", r);
      }
      if (borne && !guilty.contain(r)) hold(!w.protocol.failure(), "the run bears that", r);
      if (!w.protocol.failure() && r != 0) hold(ended_well, "a good end is everybody's", r);
      if (r == 0 || guilty.bits() != 0 || !ended_well) continue;
      hold(!w.protocol.failure(), "a good end is everybody's", r);
    }
    if (at[0]->alive && !at[0]->protocol.failure()) hold(ended_well, "rank 0 has ended it");
  }
  /// Rank 0 has ended the run, without a failure.
  void check_good_end() const {
    const auto counts = [&](rank r) { return at[r]->alive && !at[0]->protocol.gone(r); };
    for (rank a = 0; a < size; ++a) {
      hold(!at[0]->protocol.gone(a) || rules.may_go.contains(a), "nobody else may go", a);
      hold(at[0]->protocol.gone(a) || at[a]->said_done,
           "no good end before every main has returned", a);
      if (!counts(a)) continue;
      for (const rank from : at[a]->running) {
        hold(!counts(from), "no good end while a function runs", a, from);
      }
      for (rank b = 0; b < size; ++b) {
        if (!counts(b) || a == b) continue;
        hold(at[a]->sent[b] == at[b]->finished[a], "no good end if a request is lost", a, b);
        const auto& w = wire(a, b);
        hold(std::none_of(w.begin(), w.end(),
                          [](const flight& f) { return f.what == flight::kind::request; }),
             "no good end while a request is under way", a, b);
      }
    }
  }

  void encode(encoder& e) const {
    e << rules.requests << rules.crashes << rules.cuts << rules.throws << rules.hushes;
    e << guilty.bits() << accused.bits() << broken_.bits() << (paused ? 1 : 0)
      << (ended_well ? 1 : 0);
    e.list(waiting, [&](const link_ends& w) { e << w.low << w.high; });
    std::uint64_t round = 0;
    for (const auto& w : at) {
      e << static_cast<std::uint64_t>(w->main) << (w->alive ? 1 : 0) << (w->silent ? 1 : 0)
        << (w->said_done ? 1 : 0) << (w->ended ? 1 : 0) << (w->left ? 1 : 0) << w->down.bits()
        << w->deaf.bits() << w->lost.bits();
      e.list(w->sent);
      e.list(w->finished);
      e.list(w->running);
      if (!w->alive) continue;
      const std::uint64_t asked = encode(e, w->protocol);
      if (&w == &at[0]) round = asked;
    }
    for (const auto& w : wires) {
      e.list(*w, [&](const flight& f) {
        e << static_cast<std::uint64_t>(f.what);
        if (f.what == flight::kind::control) encode(e, f.control, round);
      });
    }
  }

 private:
  // The number of a round says no more than whether a message is of the last one.
  static void encode(encoder& e, const shutdown_message& m, std::uint64_t round) {
    e << static_cast<std::uint64_t>(m.what) << m.rank;
    e << (m.round == round ? 1 : 0);
    encode(e, m.report);
  }
  static void encode(encoder& e, const work_report& report) {
    e.list(report,
           [&](const peer_counts& c) { e << c.peer << c.sent << c.finished << (c.down ? 1 : 0); });
  }
  static std::uint64_t encode(encoder& e, const drain& d) {
    return exploring::with_members(d, [&](auto round, const auto& now, const auto& before,
                                          const auto& answered, const auto& gone, auto missing,
                                          bool even_before) {
      e << std::min<std::uint64_t>(round, 2) << missing << (even_before ? 1 : 0);
      e.list(now, [&](const work_report& r) { encode(e, r); });
      e.list(before, [&](const work_report& r) { encode(e, r); });
      e.list(answered);
      e.list(gone);
      return round;
    });
  }
  static void encode(encoder& e, const cut_links& cuts) {
    const auto number = [&](const std::optional<std::uint64_t>& n) { e << (n ? 1 + *n : 0); };
    exploring::with_members(cuts, [&](const auto& all) {
      e.list(all, [&](const auto& entry) {
        const cut_link& cut = entry.second.cut;
        e << cut.between.low << cut.between.high << (entry.second.waits ? 1 : 0)
          << (entry.second.whole_taken ? 1 : 0);
        for (const cut_link::way& way : {cut.up, cut.down}) number(way.sent), number(way.ran);
      });
    });
  }
  static std::uint64_t encode(encoder& e, const shutdown_protocol& p) {
    return exploring::with_members(
        p, [&](const auto& done, auto finished, const auto& gone, const drain& counting, bool asked,
               bool returned, bool over, bool told, const auto& unconfirmed, const auto& failure,
               const cut_links& cuts, const auto& accused) {
          encode(e, cuts);
          e << (accused ? 1 + accused->who : 0);
          e.list(done);
          e.list(gone);
          e << finished << (asked ? 1 : 0) << (returned ? 1 : 0) << (over ? 1 : 0) << (told ? 1 : 0)
            << (unconfirmed ? 1 + unconfirmed->rank : 0) << (failure ? 1 + failure->first : 0);
          return encode(e, counting);
        });
  }

  /// Who is to blame where the main of `who` fails because its link to `peer` is lost.
  void judge(rank who, rank peer) {
    const worker& other = *at[peer];
    const bool wordless = other.left && !other.protocol.final_message();
    if (!broken(who, peer) && !guilty.contain(peer) && !wordless) return;
    if (rules.may_go.contains(who) || rules.may_go.contains(peer)) {
      guilty.add(who);  // whose loss the run bears, it blames on who cannot
    } else if (broken(who, peer)) {
      guilty.add(peer);
    }
  }

  const std::vector<flight>& wire(rank from, rank to) const { return *wires[from * size + to]; }
  void clear(rank from, rank to) {
    if (!wire(from, to).empty()) wires[from * size + to].change().clear();
  }
  [[nodiscard]] bool hears(rank who, rank whom) const {
    const worker& w = *at[who];
    return w.alive && !w.left && !w.silent && !w.deaf.contain(whom);
  }
  /// Two ranks are told from others by their sum.
  [[nodiscard]] bool broken(rank a, rank b) const { return broken_.contain(a + b); }
  [[nodiscard]] bool lossy(rank from, rank to) const {
    return !at[from]->alive || broken(from, to);
  }
  [[nodiscard]] bool others_left() const {
    return (!at[1]->alive || at[0]->down.contain(1)) && (!at[2]->alive || at[0]->down.contain(2));
  }

  void deliver(rank from, rank to) {
    const flight f = wire(from, to).front();
    auto& queue = wires[from * size + to].change();
    queue.erase(queue.begin());
    switch (f.what) {
    case flight::kind::closed:
      return close_at(to, from);
    case flight::kind::request:
      if (!at[to]->ended) at[to].change().running.push_back(from);
      return;
    case flight::kind::control: {
      const bool accuses = f.control.what == shutdown_message::kind::failed;
      if (accuses && f.control.rank != from) accused.add(f.control.rank);
      const auto todo = at[to].change().protocol.received(from, f.control);
      hold(todo.has_value(), "what the others say is never refused", from, to);
      act_on(to, *todo);
    }
    }
  }
  /// `who` sees that its link to `peer` is closed.
  void close_at(rank who, rank peer) {
    clear(peer, who);
    worker& w = at[who].change();
    w.down.add(peer);
    w.deaf.add(peer);
    std::erase(w.running, peer);  // cancelled
    act_on(who, w.protocol.link_lost(peer, "it closed the connection"));
    if (who == 0 || peer == 0) return;
    const peer_counts posts{peer, w.sent[peer], w.finished[peer], true};
    act_on(who, at[who].change().protocol.counted_posts(posts, 0, "it closed the connection"));
  }
  /// What was said before arrives, if the link does not break; and so may what came before.
  void say_closed(rank from, rank to) {
    if (from == to || at[from]->down.contain(to)) return;
    at[from].change().down.add(to);
    if (at[to]->alive && !at[to]->left) {
      wires[from * size + to].change().push_back({flight::kind::closed, {}});
    }
  }
  void say(rank from, rank to, const shutdown_message& m) {
    if (at[from]->down.contain(to) || !at[to]->alive || at[to]->left) return;
    wires[from * size + to].change().push_back({flight::kind::control, m});
  }

  void act_on(rank who, const shutdown_protocol::actions& todo) {
    for (const auto& [to, m] : todo.send) say(who, to, m);
    if (todo.lost) {
      const rank lost = todo.lost->first;
      hold(!at[who]->lost.contain(lost), "a loss is told once", who, lost);
      at[who].change().lost.add(lost);
      say_closed(who, lost);
    }
    if (todo.end) {
      hold(!at[who]->ended, "a run ends once", who);
      at[who].change().ended = true;
      at[who].change().running.clear();
      if (const auto words = at[who]->protocol.final_message()) {
        for (rank r = 1; r < size; ++r) {
          if (r != who && r != words->rank) say(who, r, *words);
        }
      }
      if (who == 0 && !at[0]->protocol.failure()) {
        ended_well = true;
        check_good_end();
      }
    }
    if (todo.count) {
      work_report report;
      const worker& w = *at[who];
      for (rank r = 0; r < size; ++r) {
        const peer_counts c{r, w.sent[r], w.finished[r], w.down.contain(r)};
        if (c != peer_counts{r, 0, 0, false}) report.push_back(c);
      }
      act_on(who, at[who].change().protocol.counted(*todo.count, std::move(report)));
    }
    if (todo.ask_again) paused = true;
    if (todo.wait_for) waiting.insert(*todo.wait_for);
    if (todo.cut) judge_cut(*todo.cut);
  }
  /// Rank 0 says what is lost by a broken link.
  void judge_cut(const cut_link& cut) {
    const auto [low, high] = cut.between;
    hold(broken(low, high) || guilty.contain(low) || guilty.contain(high),
         "only a broken link is said to be", low, high);
    if (cut.up.ran && cut.down.ran) {
      hold(cut.up.lost() == at[low]->sent[high] - at[high]->finished[low], "lost", low, high);
      hold(cut.down.lost() == at[high]->sent[low] - at[low]->finished[high], "lost", high, low);
    }
    act_on(0, at[0].change().protocol.link_cut(cut.between, "their link broke"));
  }

  [[nodiscard]] bool waits_for_time() const {
    if (!waiting.empty() && at[0]->alive && !at[0]->ended) return true;
    for (rank r = 0; r < size; ++r) {
      const worker& w = *at[r];
      if (w.alive && (w.silent || (w.ended && !w.left))) return true;
    }
    return false;
  }
  /// Deadlines come only when nothing else does.
  void time_passes() {
    if (at[0]->alive && !at[0]->ended) {
      shutdown_protocol& p = at[0].change().protocol;
      for (const link_ends which : waiting) {  // as worker::wait_for_other_end
        const bool gone = p.gone(which.low) || p.gone(which.high);
        const auto up = [&](rank r) { return r == 0 || !at[0]->down.contain(r); };
        if (!gone && !(up(which.low) && up(which.high))) continue;
        waiting.erase(which);
        return act_on(0, p.unanswered(which));
      }
      const auto missing = p.unfinished();
      if (missing && !missing->unanswered.empty()) {
        return act_on(0, p.exclude(missing->unanswered.front(), "it did not answer"));
      }
    }
    if (at[0]->ended && !at[0]->left) make({act::leave, 0});
  }

  plan rules;
  std::vector<exploring::shared<worker>> at;
  std::vector<exploring::shared<std::vector<flight>>> wires;
  ranks guilty;                 // of anything that may have ended the run
  ranks accused;                // by others
  ranks broken_;                // the links that were cut
  std::set<link_ends> waiting;  // rank 0, for the other end of these
  bool paused = false;
  bool ended_well = false;
};

TEST_CASE("run state, explored: nothing is lost, and all end well") {
  exploring::explore("two requests", world({.requests = 2}), 200'000);
}

TEST_CASE("run state, explored: a worker is lost at any moment") {
  exploring::explore("without whom it ends", world({.requests = 1, .crashes = 1}), 500'000);
  exploring::explore("without whom it goes on",
                     world({.may_go = {1, 2}, .requests = 1, .crashes = 1}), 500'000);
  exploring::explore("it goes on without one", world({.may_go = {2}, .crashes = 1}), 500'000);
  exploring::explore("all mains bear it",
                     world({.may_go = {1, 2}, .requests = 1, .crashes = 1, .bears = true}),
                     500'000);
}

TEST_CASE("run state, explored: a main fails at any moment") {
  exploring::explore("without whom it ends", world({.throws = 1}), 500'000);
  exploring::explore("without whom it goes on", world({.may_go = {1, 2}, .throws = 1}), 500'000);
  exploring::explore("everybody hears why",
                     world({.throws = 1, .bears = true, .only_throws = true}), 500'000);
}

TEST_CASE("run state, explored: a link is lost at any moment") {
  exploring::explore("without whom it ends", world({.cuts = 1}), 500'000);
  exploring::explore("without whom it goes on", world({.may_go = {2}, .cuts = 1}), 500'000);
}

TEST_CASE("run state, explored: a worker falls silent before the end") {
  exploring::explore("without whom it ends", world({.hushes = 1}), 500'000);
  exploring::explore("without whom it goes on", world({.may_go = {1, 2}, .hushes = 1}), 500'000);
}

TEST_CASE("run state, explored: two faults") {
  exploring::explore("a worker is lost, a main fails",
                     world({.crashes = 1, .throws = 1, .bears = true}), 500'000);
  exploring::explore("two workers are lost", world({.may_go = {1, 2}, .crashes = 2}), 500'000);
}

TEST_CASE("run state, explored: more of everything" * doctest::skip(!exploring::widely())) {
  exploring::explore("a worker is lost, two requests", world({.requests = 2, .crashes = 1}),
                     500'000);
  exploring::explore("a main fails, a request", world({.requests = 1, .throws = 1}), 500'000);
  exploring::explore("a link is lost, a request", world({.requests = 1, .cuts = 1}), 500'000);
  exploring::explore("a link, a request", world({.may_go = {2}, .requests = 1, .cuts = 1}),
                     500'000);
  exploring::explore("one that was silent, and fails then",
                     world({.may_go = {1, 2}, .throws = 1, .hushes = 1}), 500'000);
  exploring::explore("a worker and a link",
                     world({.may_go = {2}, .requests = 1, .crashes = 1, .cuts = 1}), 500'000);
  exploring::explore("a worker, a link and a main",
                     world({.may_go = {1, 2}, .crashes = 1, .cuts = 1, .throws = 1}), 500'000);
}

}  // namespace run_ends
