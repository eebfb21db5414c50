// SPDX-License-Identifier: BSL-1.0
// When the requests of a run are done: examples, random schedules, and every schedule of small
// runs.
#include <weft/engine/shutdown/drain.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <core/run_all.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace draining {

using weft::engine::drain;
using weft::engine::peer_counts;
using weft::engine::work_report;
using step = drain::step;
using ranks = std::vector<std::uint32_t>;

TEST_CASE("drain: nothing was ever sent") {
  for (const std::uint32_t size : {1u, 2u, 5u}) {
    drain d(size);
    std::optional<step> last;
    for (int round = 0; round < 2; ++round) {
      const auto n = d.ask();
      for (std::uint32_t r = 0; r < size; ++r) last = d.answer(r, n, {});
      CHECK(last == (round == 0 ? step::ask_again : step::done));
    }
  }
}

TEST_CASE("drain: one even round is not enough, two that differ are not either") {
  drain d(2);
  auto round = [&](std::uint64_t n) {
    const auto r = d.ask();
    CHECK(d.answer(0, r, {{1, n, 0, false}}) == step::waiting);
    return d.answer(1, r, {{0, 0, n, false}});
  };
  CHECK(round(1) == step::ask_again);
  CHECK(round(2) == step::ask_again);
  CHECK(round(3) == step::ask_again);
  CHECK(round(3) == step::done);
}

TEST_CASE("drain: uneven counts wait, longer each time but not for ever longer") {
  drain d(2);
  std::chrono::milliseconds last{0};
  for (int i = 0; i < 20; ++i) {
    const auto r = d.ask();
    CHECK(d.answer(1, r, {{0, 0, 2, false}}) == step::waiting);
    CHECK(d.answer(0, r, {{1, 3, 0, false}}) == step::ask_again_later);
    CHECK(d.pause() >= last);
    last = d.pause();
  }
  CHECK(last <= std::chrono::milliseconds(100));
  const auto missing = d.missing();
  CHECK(missing.unanswered.empty());
  CHECK(missing.worker == 1);
  CHECK(missing.sender == 0);
  CHECK(missing.missing == 1);
  CHECK(missing.all == 1);
}

TEST_CASE("drain: a lost link is never even, though its counts may be, until one end is left") {
  for (const bool at_sender : {false, true}) {
    for (const std::uint64_t finished : {4, 9}) {
      drain d(3);
      const auto round = [&](bool alone) {
        const auto r = d.ask();
        CHECK(d.answer(0, r, {}) == step::waiting);
        if (alone) return *d.answer(1, r, {{2, 9, 0, at_sender}});
        CHECK(d.answer(1, r, {{2, 9, 0, at_sender}}) == step::waiting);
        return *d.answer(2, r, {{1, 0, finished, !at_sender}});
      };
      for (int i = 0; i < 3; ++i) CHECK(round(false) == step::ask_again_later);
      CHECK(d.missing().unanswered.empty());
      CHECK(d.missing().missing == 0);  // nobody owes what is lost
      CHECK(d.leave(2) == step::waiting);
      CHECK(round(true) == step::ask_again);
      CHECK(round(true) == step::done);
    }
  }
}

TEST_CASE("drain: whoever owes the most is known, and who has not answered") {
  drain d(3);
  auto round = d.ask();
  CHECK(d.answer(0, round, {{1, 5, 0, false}, {2, 9, 0, false}}) == step::waiting);
  CHECK(d.answer(1, round, {{0, 0, 4, false}}) == step::waiting);
  CHECK(d.answer(2, round, {{0, 0, 2, false}}) == step::ask_again_later);
  CHECK(d.missing().worker == 2);
  CHECK(d.missing().missing == 7);
  CHECK(d.missing().all == 8);
  CHECK(d.missing().unanswered.empty());
  // Those who have said in a later round that they are done owe nothing more.
  round = d.ask();
  CHECK(d.answer(0, round, {{1, 5, 0, false}, {2, 9, 0, false}}) == step::waiting);
  CHECK(d.missing().unanswered == ranks{1, 2});
  CHECK(d.missing().worker == 2);
  CHECK(d.answer(2, round, {{0, 0, 9, false}}) == step::waiting);
  CHECK(d.missing().unanswered == ranks{1});
  CHECK(d.missing().worker == 1);
  CHECK(d.missing().all == 1);
}

TEST_CASE("drain: who grows is known by two answers, also while another round is under way") {
  drain d(3);
  const auto round_of = [&](std::uint64_t sent) {
    const auto round = d.ask();
    CHECK(d.answer(0, round, {{0, 7, 7, false}}) == step::waiting);
    CHECK(d.answer(1, round, {{1, 2, 2, false}}) == step::waiting);
    CHECK(d.answer(2, round, {{2, sent, sent, false}}) == step::ask_again);
  };
  round_of(100);
  CHECK_FALSE(d.missing().growing);  // of one round nobody knows
  round_of(102);
  CHECK(d.missing().growing);
  CHECK(d.missing().worker == 2);
  const auto round = d.ask();
  CHECK(d.answer(0, round, {{0, 8, 8, false}}) == step::waiting);
  CHECK(d.missing().growing);
  CHECK(d.missing().worker == 2);
  CHECK(d.leave(2) == step::waiting);
  CHECK(d.missing().growing);
  CHECK(d.missing().worker == 0);  // who has left does not
  CHECK(d.missing().unanswered == ranks{1});
}

TEST_CASE("drain: answers that nobody gives") {
  drain d(3);
  CHECK_FALSE(d.answer(0, 1, {}));  // no question yet
  const auto r = d.ask();
  CHECK_FALSE(d.answer(1, r + 1, {}));
  CHECK_FALSE(d.answer(3, r, {}));
  CHECK_FALSE(d.answer(1, r, {{3, 1, 0, false}}));                    // no such peer
  CHECK_FALSE(d.answer(1, r, {{1, 1, 0, false}, {1, 1, 0, false}}));  // twice
  CHECK_FALSE(d.answer(1, r, {{2, 1, 0, false}, {1, 1, 0, false}}));  // not ascending
  CHECK(d.answer(1, r, {{1, 1, 0, false}, {2, 1, 0, false}}) == step::waiting);
  CHECK_FALSE(d.answer(1, r, {}));  // a second time
}

TEST_CASE("drain: a worker that is left behind is neither waited for nor counted") {
  drain d(3);
  // In a round: it is the last that was missing.
  auto round = d.ask();
  CHECK(d.answer(0, round, {{2, 9, 0, false}}) == step::waiting);
  CHECK(d.answer(1, round, {{2, 3, 1, false}}) == step::waiting);
  CHECK(d.leave(2) == step::ask_again);
  CHECK(d.leave(2) == step::waiting);  // once
  CHECK(d.missing().unanswered.empty());
  CHECK(d.missing().all == 0);
  round = d.ask();
  CHECK_FALSE(d.answer(2, round, {}));  // it is not asked
  CHECK(d.answer(0, round, {{2, 10, 0, false}}) == step::waiting);
  CHECK(d.answer(1, round, {{2, 3, 2, true}}) == step::done);  // what it did changes nothing
}

TEST_CASE("drain: one that leaves between rounds, or before the first, holds nobody up") {
  for (const bool before_all : {false, true}) {
    drain d(3);
    if (before_all) CHECK(d.leave(2) == step::waiting);
    auto round = d.ask();
    CHECK(d.answer(0, round, {{1, 1, 0, false}}) == step::waiting);
    if (!before_all) CHECK(d.answer(2, round, {{0, 7, 0, false}}) == step::waiting);
    CHECK(d.answer(1, round, {}) == step::ask_again_later);
    if (!before_all) CHECK(d.leave(2) == step::waiting);  // the pause is under way already
    for (const step next : {step::ask_again, step::done}) {
      round = d.ask();
      CHECK(d.answer(0, round, {{1, 1, 0, false}}) == step::waiting);
      CHECK(d.answer(1, round, {{0, 0, 1, false}}) == next);
    }
  }
}

TEST_CASE("drain: whoever owes something goes on owing it when another one leaves") {
  drain d(4);
  const auto round = d.ask();
  CHECK(d.answer(0, round, {{1, 5, 0, false}, {3, 50, 0, false}}) == step::waiting);
  CHECK(d.answer(1, round, {{0, 0, 4, false}}) == step::waiting);
  CHECK(d.answer(2, round, {}) == step::waiting);
  CHECK(d.leave(3) == step::ask_again_later);
  CHECK(d.missing().worker == 1);
  CHECK(d.missing().all == 1);
}

// ── whole runs ──

/// Requests that send requests, and counting that takes its time: every worker reads first what it
/// has finished, later what it has sent, and anything may happen in between. Links break, which each
/// end notices in its time; whatever a lost worker, or one beyond a lost link, has asked for runs on.
struct run {
  struct request {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t depth = 0;  // how many generations it still begets
    std::set<std::pair<std::uint32_t, std::uint32_t>> over{};  // the links that led to it
  };
  struct worker {
    std::vector<std::uint64_t> sent;
    std::vector<std::uint64_t> finished;
    std::vector<bool> down;  // it has noticed that this link is lost
    std::deque<request> running;
    enum class asking { no, asked, half } question = asking::no;
    std::vector<std::uint64_t> read;
  };
  struct report {
    std::uint32_t from = 0;
    work_report counts;
  };

  explicit run(std::uint32_t size) : workers(size), gone(size, false), rank0(size) {
    for (worker& w : workers) {
      w.sent.assign(size, 0);
      w.finished.assign(size, 0);
      w.down.assign(size, false);
    }
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(workers.size()); }
  [[nodiscard]] static std::pair<std::uint32_t, std::uint32_t> link(std::uint32_t a,
                                                                    std::uint32_t b) {
    return std::minmax(a, b);
  }
  void send(request r) {
    if (workers[r.from].down[r.to]) return;
    ++workers[r.from].sent[r.to];
    if (lost.contains(link(r.from, r.to))) return;  // and its sender does not know
    r.over.insert(link(r.from, r.to));
    flying.push_back(std::move(r));
  }
  void ask() {
    round = rank0.ask();
    history.first = std::exchange(history.second, std::string());
    paused = false;
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (!gone[r]) workers[r].question = worker::asking::asked;
    }
  }
  /// What is under way on that link is lost; what came over it runs on.
  void cut(std::uint32_t a, std::uint32_t b) {
    if (a == b) return;
    lost.insert(link(a, b));
    std::erase_if(flying, [&](const request& r) { return link(r.from, r.to) == link(a, b); });
  }
  /// That worker is gone, with all that it did and all that is on its way from and to it.
  void leave(std::uint32_t who) {
    for (std::uint32_t r = 0; r < size(); ++r) cut(who, r);
    std::erase_if(flying, [who](const request& r) { return r.to == who; });
    std::erase_if(reports, [who](const report& r) { return r.from == who; });
    workers[who].running.clear();
    workers[0].down[who] = true;  // and the others when they hear of it
    workers[who].question = worker::asking::no;
    gone[who] = true;
    follow(rank0.leave(who));
  }
  void follow(step next) {
    last = next;
    if (last == step::ask_again) ask();
    paused = paused || last == step::ask_again_later;
    over = last == step::done;
  }
  /// Whether all requests are done but those that a lost link led to, and whatever they sent: for
  /// them nobody waits.
  [[nodiscard]] bool quiet() const {
    const auto counts = [&](const request& r) {
      return std::none_of(r.over.begin(), r.over.end(),
                          [&](const auto& l) { return lost.contains(l); });
    };
    bool out = std::none_of(flying.begin(), flying.end(), counts);
    for (const worker& w : workers) {
      out = out && std::none_of(w.running.begin(), w.running.end(), counts);
    }
    return out;
  }
  /// Who has not noticed yet that a link is lost.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> unaware() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    for (const auto& [a, b] : lost) {
      if (!gone[a] && !workers[a].down[b]) out.emplace_back(a, b);
      if (!gone[b] && !workers[b].down[a]) out.emplace_back(b, a);
    }
    return out;
  }

  /// Whom rank 0 leaves behind, as an end of a lost link has noticed that.
  [[nodiscard]] std::optional<std::uint32_t> to_be_left() const {
    for (const auto& [a, b] : lost) {
      if (gone[a] || gone[b]) continue;
      if (workers[a].down[b] || workers[b].down[a]) return b;
    }
    return std::nullopt;
  }

  // The moves; each is chosen by number, in this order.
  [[nodiscard]] std::size_t moves() const {
    std::size_t n = flying.size() + reports.size() + unaware().size() + (paused ? 1 : 0);
    for (const worker& w : workers) n += w.running.size() + (w.question != worker::asking::no);
    return n;
  }
  /// `beget(request)` says to whom the finishing request sends others.
  template <class Beget>
  void move(std::size_t which, Beget&& beget) {
    if (which < flying.size()) {
      const request r = flying[which];
      flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(which));
      workers[r.to].running.push_back(r);
      return;
    }
    which -= flying.size();
    if (which < reports.size()) {
      const report r = reports[which];
      reports.erase(reports.begin() + static_cast<std::ptrdiff_t>(which));
      history.second += text_of(r);
      const auto next = rank0.answer(r.from, round, r.counts);
      REQUIRE(next);
      follow(*next);
      return;
    }
    which -= reports.size();
    const auto notices = unaware();
    if (which < notices.size()) {
      workers[notices[which].first].down[notices[which].second] = true;
      return;
    }
    which -= notices.size();
    if (paused && which-- == 0) {
      ask();
      return;
    }
    for (std::uint32_t at = 0; at < size(); ++at) {
      worker& w = workers[at];
      if (which < w.running.size()) {
        const request r = w.running[which];
        w.running.erase(w.running.begin() + static_cast<std::ptrdiff_t>(which));
        if (r.depth > 0) {
          for (const std::uint32_t to : beget(r)) send({at, to, r.depth - 1, r.over});
        }
        ++w.finished[r.from];
        return;
      }
      which -= w.running.size();
      if (w.question == worker::asking::no || which-- != 0) continue;
      if (w.question == worker::asking::asked) {
        w.read = w.finished;
        w.question = worker::asking::half;
      } else {
        work_report counts;
        for (std::uint32_t p = 0; p < size(); ++p) {
          const peer_counts c{p, w.sent[p], w.read[p], w.down[p]};
          if (c != peer_counts{p, 0, 0, false}) counts.push_back(c);
        }
        w.question = worker::asking::no;
        reports.push_back({at, std::move(counts)});
      }
      return;
    }
  }

  [[nodiscard]] static std::string text_of(const report& r) {
    std::string out = "/" + std::to_string(r.from);
    for (const peer_counts& c : r.counts) {
      for (const std::uint64_t n :
           {std::uint64_t{c.peer}, c.sent, c.finished, std::uint64_t{c.down}}) {
        out += "," + std::to_string(n);
      }
    }
    return out;
  }
  /// All that the future depends on: the drain's own state follows from the last two rounds.
  [[nodiscard]] std::string state() const {
    std::string out = history.first + "|" + history.second + "|" + (paused ? "p" : "") +
                      std::to_string(static_cast<int>(last)) + "|";
    auto add = [&](const request& r) {
      out += std::to_string(r.from) + std::to_string(r.to) + std::to_string(r.depth) + ";";
    };
    for (const request& r : flying) add(r);
    for (const report& r : reports) out += text_of(r);
    for (const worker& w : workers) {
      out += "|" + std::to_string(static_cast<int>(w.question));
      for (const request& r : w.running) add(r);
      for (const auto& counts : {w.sent, w.finished, w.read}) {
        for (const std::uint64_t n : counts) out += std::to_string(n) + ".";
      }
    }
    return out;
  }

  std::vector<worker> workers;
  std::vector<bool> gone;
  std::set<std::pair<std::uint32_t, std::uint32_t>> lost;  // links
  drain rank0;
  std::uint64_t round = 0;
  std::vector<request> flying;
  std::vector<report> reports;
  std::pair<std::string, std::string> history;
  step last = step::waiting;
  bool paused = false;
  bool over = false;
};

TEST_CASE(
    "drain: in random schedules it is done only when nothing is left, and always in the end") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const auto size = static_cast<std::uint32_t>(1 + below(5));
    run r(size);
    const auto anybody = [&] { return static_cast<std::uint32_t>(below(size)); };
    std::size_t budget = 200;
    for (std::size_t i = below(8); i > 0; --i) {
      r.send({anybody(), anybody(), static_cast<std::uint32_t>(below(30))});
    }
    r.ask();
    std::size_t moves = 0;
    while (!r.over && moves < 1'000'000) {
      ++moves;
      REQUIRE(r.moves() > 0);
      r.move(below(r.moves()), [&](const run::request&) {
        std::vector<std::uint32_t> out;
        for (std::size_t n = below(3); n > 0 && budget > 0; --n, --budget) out.push_back(anybody());
        return out;
      });
    }
    REQUIRE(r.over);
    CHECK(r.quiet());
  }
}

TEST_CASE("drain: workers and links lost at any time keep nobody, and nobody else is forgotten") {
  std::size_t left_behind = 0;
  for (std::uint64_t seed = 1; seed <= weft::testing::rounds(400, 2000); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const auto size = static_cast<std::uint32_t>(2 + below(4));
    run r(size);
    const auto anybody = [&] { return static_cast<std::uint32_t>(below(size)); };
    std::size_t budget = 100;
    std::size_t losses = below(4);  // in the end so many stay that somebody could wait for ever
    for (std::size_t i = 4 + below(8); i > 0; --i) {
      r.send({anybody(), anybody(), static_cast<std::uint32_t>(below(20))});
    }
    if (below(4) == 0) r.leave(size - 1);
    r.ask();
    std::size_t moves = 0;
    while (!r.over && moves < 1'000'000) {
      ++moves;
      if (losses > 0 && below(30) == 0) {
        --losses;
        const auto who = static_cast<std::uint32_t>(1 + below(size - 1));
        const auto other = static_cast<std::uint32_t>(1 + below(size - 1));
        if (below(2) == 0) {
          r.cut(who, other);  // rank 0 has links to all that are not gone
        } else if (!r.gone[who]) {
          r.leave(who);
          continue;
        }
      }
      if (const auto who = r.to_be_left(); who && below(10) == 0) {
        r.leave(*who);
        continue;
      }
      REQUIRE(r.moves() > 0);
      r.move(below(r.moves()), [&](const run::request&) {
        std::vector<std::uint32_t> out;
        for (std::size_t n = below(4); n > 0 && budget > 0; --n, --budget) out.push_back(anybody());
        return out;
      });
    }
    REQUIRE(r.over);
    CHECK(r.quiet());
    for (const auto& [a, b] : r.lost) {  // one that lives at both ends had lost nothing
      if (r.gone[a] || r.gone[b]) continue;
      CHECK(r.workers[a].sent[b] == r.workers[b].finished[a]);
      CHECK(r.workers[b].sent[a] == r.workers[a].finished[b]);
    }
    for (const run::worker& w : r.workers) left_behind += w.running.size();
  }
  CHECK(left_behind > 0);  // what nobody waited for
}

/// Goes through every order of moves from `first`; how many states there are.
std::size_t every_schedule(const run& first) {
  std::set<std::string> seen;
  std::vector<run> open{first};
  std::size_t ends = 0;
  while (!open.empty()) {
    const run at = std::move(open.back());
    open.pop_back();
    if (at.over) {
      ++ends;
      REQUIRE(at.quiet());
      continue;
    }
    REQUIRE(at.moves() > 0);  // nobody waits for nothing
    for (std::size_t i = 0; i < at.moves(); ++i) {
      run next = at;
      next.move(i, [&](const run::request& r) { return std::vector<std::uint32_t>{r.from}; });
      if (seen.insert(next.state()).second) open.push_back(std::move(next));
    }
    REQUIRE(seen.size() < 2'000'000);
  }
  CHECK(ends > 0);
  return seen.size();
}

TEST_CASE("drain: every schedule of small runs") {
  // Requests that come back twice, and one that is answered by itself.
  run to_and_fro(2);
  to_and_fro.send({0, 1, 2});
  to_and_fro.ask();
  MESSAGE("one request to and fro: ", every_schedule(to_and_fro), " states");

  run crossing(2);
  crossing.send({0, 1, 1});
  crossing.send({1, 0, 0});
  crossing.ask();
  MESSAGE("two that cross: ", every_schedule(crossing), " states");

  if (!weft::testing::run_all()) return;
  run three(3);
  three.send({1, 2, 1});
  three.ask();
  MESSAGE("three workers: ", every_schedule(three), " states");
}

}  // namespace draining
