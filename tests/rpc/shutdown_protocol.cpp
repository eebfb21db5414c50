// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/shutdown_protocol.hpp>

#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace run_states {

using weft::engine::shutdown_message;
using weft::engine::shutdown_protocol;
using kind = shutdown_message::kind;

/// All workers of a run, with messages in flight that the test delivers.
struct world {
  struct flight {
    std::uint32_t from;
    std::uint32_t to;
    shutdown_message m;
  };

  explicit world(std::uint32_t size) : ended(size, false), lost(size), counts(size) {
    for (std::uint32_t r = 0; r < size; ++r) workers.emplace_back(r, size);
  }
  void act(std::uint32_t who, const shutdown_protocol::actions& a) {
    for (const auto& [to, m] : a.send) inflight.push_back({who, to, m});
    if (a.lose) lost[who].push_back(a.lose->first);
    if (a.count) {
      ++asked;
      act(who, workers[who].counted(*a.count, counts[who]));
    }
    if (a.ask_again) pause = a.ask_again;
    if (a.end) {
      CHECK_FALSE(ended[who]);  // once
      ended[who] = true;
    }
  }
  void deliver_all() {
    while (!inflight.empty()) {
      const flight f = inflight.front();
      inflight.pop_front();
      const auto a = workers[f.to].received(f.from, f.m);
      REQUIRE(a);
      act(f.to, *a);
    }
  }

  std::vector<shutdown_protocol> workers;
  std::deque<flight> inflight;
  std::vector<bool> ended;
  std::vector<std::vector<std::uint32_t>> lost;
  std::vector<weft::engine::work_report> counts;  // what each answers
  int asked = 0;
  std::optional<std::chrono::milliseconds> pause;
};

TEST_CASE("run state: ends everywhere once every main has returned, in any order") {
  for (const auto& order : {std::vector<std::uint32_t>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    world w(3);
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const bool e : w.ended) CHECK_FALSE(e);
      w.act(order[i], w.workers[order[i]].main_returned());
      w.deliver_all();
    }
    for (std::uint32_t r = 0; r < 3; ++r) {
      CHECK(w.ended[r]);
      CHECK(w.workers[r].over());
      CHECK_FALSE(w.workers[r].failure());
      CHECK(w.lost[r].empty());
    }
  }
}

TEST_CASE("run state: one worker alone") {
  world w(1);
  w.act(0, w.workers[0].main_returned());
  CHECK(w.ended[0]);
}

TEST_CASE("run state: a main that fails ends the run everywhere, and is named") {
  for (std::uint32_t who = 0; who < 3; ++who) {
    world w(3);
    w.act(1, w.workers[1].main_returned());
    if (who != 1) w.act(who, w.workers[who].main_failed(who, "boom"));
    if (who == 1) continue;
    w.deliver_all();
    for (std::uint32_t r = 0; r < 3; ++r) {
      CAPTURE(who);
      CAPTURE(r);
      CHECK(w.ended[r]);
      REQUIRE(w.workers[r].failure());
      CHECK(w.workers[r].failure()->first == who);
      CHECK(w.workers[r].failure()->second == "boom");
      if (r != who) CHECK(w.lost[r] == std::vector<std::uint32_t>{who});
    }
  }
}

TEST_CASE("run state: rank 0 hears of a lost worker and tells the others") {
  world w(4);
  w.act(0, w.workers[0].link_lost(2, "the peer closed the connection"));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u, 3u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 2);
  }
  CHECK_FALSE(w.ended[2]);  // it is gone
}

TEST_CASE("run state: a worker that loses rank 0 ends by itself; one that loses another waits") {
  world w(3);
  w.act(1, w.workers[1].link_lost(2, "x"));
  CHECK_FALSE(w.ended[1]);
  w.act(1, w.workers[1].link_lost(0, "gone"));
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->first == 0);
}

TEST_CASE("run state: a worker lost after its main returned still ends the run") {
  world w(3);
  w.act(2, w.workers[2].main_returned());
  w.deliver_all();
  w.act(0, w.workers[0].link_lost(2, "x"));
  w.deliver_all();
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->first == 2);
}

TEST_CASE("run state: only the first failure counts") {
  world w(3);
  w.act(1, w.workers[1].main_failed(1, "first"));
  w.act(2, w.workers[2].main_failed(2, "second"));
  w.deliver_all();
  CHECK(w.workers[0].failure()->second == "first");
  CHECK(w.workers[1].failure()->second == "first");
  CHECK(w.workers[2].failure()->second == "second");  // its own, before it heard
  w.act(0, w.workers[0].link_lost(1, "later"));
  w.act(0, w.workers[0].main_failed(0, "later"));
  CHECK(w.workers[0].failure()->second == "first");
  CHECK(w.inflight.empty());
}

TEST_CASE("run state: who fails because another is lost leaves the verdict to rank 0") {
  world w(4);
  // Worker 3 has failed, and worker 2 sees the closed connection before it hears of that.
  w.act(3, w.workers[3].main_failed(3, "no disk left"));
  w.act(2, w.workers[2].main_failed(3, "the peer closed the connection"));
  CHECK_FALSE(w.ended[2]);
  w.deliver_all();
  for (std::uint32_t r = 0; r < 4; ++r) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 3);
    CHECK(w.workers[r].failure()->second == "no disk left");
  }
}

TEST_CASE("run state: a loss that only one worker sees ends the run, too") {
  world w(4);
  w.act(2, w.workers[2].main_failed(3, "the link broke"));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u, 2u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 3);
  }
  CHECK(w.lost[0] == std::vector<std::uint32_t>{3});  // its link is closed: so it hears of it
}

TEST_CASE("run state: who leaves at rank 0's word passes it on, and whoever hears it believes it") {
  world w(4);
  CHECK_FALSE(w.workers[2].parting_words());
  w.act(0, w.workers[0].link_lost(3, "it closed the connection"));
  const auto word = w.inflight.at(1);
  REQUIRE(word.to == 2);
  w.act(2, *w.workers[2].received(0, word.m));
  // Rank 0's word to worker 1 is slower than what worker 2 tells it.
  const auto passed = w.workers[2].parting_words();
  REQUIRE(passed);
  w.act(1, *w.workers[1].received(2, *passed));
  for (const std::uint32_t r : {1u, 2u}) {
    CHECK(w.ended[r]);
    CHECK(w.lost[r] == std::vector<std::uint32_t>{3});
    CHECK(w.workers[r].failure()->first == 3);
    CHECK(w.workers[r].failure()->second == "it closed the connection");
    CHECK(w.workers[r].parting_words());
  }
  w.deliver_all();  // and then it says nothing new
  CHECK_FALSE(w.workers[0].parting_words());
  // Also about oneself, whom rank 0 tells of it only if it was cut off.
  shutdown_protocol cut_off(1, 3);
  const auto told = cut_off.received(2, {kind::lost, 1, "no sign of life"});
  REQUIRE(told);
  CHECK(told->end);
  CHECK_FALSE(told->lose);
  CHECK(cut_off.failure()->first == 1);
}

TEST_CASE("run state: nobody passes on what it believes by itself") {
  shutdown_protocol lost_rank_0(1, 3);
  static_cast<void>(lost_rank_0.link_lost(0, "it closed the connection"));
  CHECK_FALSE(lost_rank_0.parting_words());
  shutdown_protocol failed(1, 3);
  static_cast<void>(failed.main_failed(1, "boom"));
  CHECK_FALSE(failed.parting_words());
  shutdown_protocol well(1, 3);
  static_cast<void>(well.received(0, {kind::ended, 1, ""}));
  CHECK_FALSE(well.parting_words());
}

TEST_CASE("run state: nothing is said after a good end") {
  world w(2);
  w.act(0, w.workers[0].main_returned());
  w.act(1, w.workers[1].main_returned());
  w.deliver_all();
  w.act(0, w.workers[0].link_lost(1, "it left first"));
  w.act(1, w.workers[1].link_lost(0, "it left first"));
  CHECK(w.inflight.empty());
  CHECK_FALSE(w.workers[0].failure());
  CHECK_FALSE(w.workers[1].failure());
}

TEST_CASE("run state: messages that break the protocol are refused") {
  shutdown_protocol zero(0, 3);
  shutdown_protocol one(1, 3);
  CHECK_FALSE(zero.received(1, {kind::finished, 2, ""}));  // about another one
  CHECK_FALSE(zero.received(1, {kind::finished, 3, ""}));  // no such rank
  CHECK_FALSE(zero.received(1, {kind::failed, 9, ""}));
  CHECK_FALSE(zero.received(1, {kind::ended, 0, ""}));
  CHECK_FALSE(zero.received(1, {kind::lost, 2, ""}));
  CHECK_FALSE(one.received(2, {kind::ended, 1, ""}));  // only rank 0 may
  CHECK_FALSE(one.received(0, {kind::finished, 0, ""}));
  CHECK_FALSE(one.received(2, {kind::failed, 2, ""}));
  CHECK_FALSE(one.received(0, {static_cast<kind>(0), 1, ""}));
  CHECK_FALSE(one.received(0, {static_cast<kind>(77), 1, ""}));
  CHECK_FALSE(zero.over());
  CHECK_FALSE(one.over());
}

TEST_CASE("run state: finishing twice counts once") {
  shutdown_protocol zero(0, 3);
  CHECK(zero.received(1, {kind::finished, 1, ""}));
  CHECK(zero.received(1, {kind::finished, 1, ""}));
  static_cast<void>(zero.main_returned());
  CHECK_FALSE(zero.over());
  const auto last = zero.received(2, {kind::finished, 2, ""});
  REQUIRE(last);
  CHECK_FALSE(last->end);  // what was sent may still be under way
  CHECK(last->count == 1);
  CHECK(last->send.size() == 2);
  CHECK(zero.received(1, {kind::finished, 1, ""})->send.empty());
}

TEST_CASE("run state: ends when what was sent is done, and not before") {
  world w(3);
  w.counts[0] = {{1, 2, 0, false}};
  w.counts[1] = {{0, 0, 1, false}};
  for (std::uint32_t r = 0; r < 3; ++r) w.act(r, w.workers[r].main_returned());
  w.deliver_all();
  CHECK(w.asked == 3);
  REQUIRE(w.pause);
  for (const bool e : w.ended) CHECK_FALSE(e);
  const auto missing = w.workers[0].unfinished();
  REQUIRE(missing);
  CHECK(missing->worker == 1);
  CHECK(missing->missing == 1);
  CHECK_FALSE(w.workers[1].unfinished());  // for rank 0 to say
  w.counts[1] = {{0, 0, 2, false}};
  w.act(0, w.workers[0].ask_again());
  w.deliver_all();
  CHECK(w.asked == 9);
  for (const bool e : w.ended) CHECK(e);
  CHECK_FALSE(w.workers[0].failure());
  CHECK_FALSE(w.workers[0].unfinished());
  CHECK(w.workers[0].ask_again().send.empty());
}

TEST_CASE("run state: what is not done in time ends the run, with the name of who owes it") {
  world w(3);
  w.counts[0] = {{2, 5, 0, false}};
  CHECK_FALSE(w.workers[0].unfinished());  // the mains still run
  for (std::uint32_t r = 0; r < 3; ++r) w.act(r, w.workers[r].main_returned());
  w.deliver_all();
  const auto missing = w.workers[0].unfinished();
  REQUIRE(missing);
  w.act(0, w.workers[0].cut(missing->worker, "5 requests are not done"));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u, 2u}) {
    CHECK(w.ended[r]);
    REQUIRE(w.workers[r].failure());
    CHECK(w.workers[r].failure()->first == 2);
    CHECK(w.workers[r].failure()->second == "5 requests are not done");
  }
  CHECK(w.lost[2].empty());
  CHECK(w.lost[0] == std::vector<std::uint32_t>{2});  // which tells it, too
}

TEST_CASE("run state: a worker lost while the requests are counted ends the run") {
  world w(3);
  for (std::uint32_t r = 0; r < 3; ++r) w.act(r, w.workers[r].main_returned());
  w.act(0, w.workers[0].link_lost(2, "gone"));
  w.deliver_all();
  CHECK(w.ended[0]);
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->first == 2);
}

TEST_CASE("run state: counting that breaks the protocol is refused") {
  shutdown_protocol zero(0, 2);
  shutdown_protocol one(1, 2);
  CHECK_FALSE(one.received(0, {kind::count, 1, "", 1}));    // its main still runs
  CHECK_FALSE(zero.received(1, {kind::counts, 1, "", 1}));  // nobody asked
  static_cast<void>(one.main_returned());
  CHECK(one.received(0, {kind::count, 1, "", 1})->count == 1);
  CHECK_FALSE(one.received(0, {kind::counts, 0, "", 1}));
  CHECK_FALSE(zero.received(1, {kind::count, 0, "", 1}));
  static_cast<void>(zero.main_returned());
  REQUIRE(zero.received(1, {kind::finished, 1, ""}));
  CHECK_FALSE(zero.received(1, {kind::counts, 0, "", 1}));  // about another one
  CHECK_FALSE(zero.received(1, {kind::counts, 1, "", 7}));  // of another round
  CHECK_FALSE(zero.received(1, {kind::counts, 1, "", 1, {{2, 1, 1, false}}}));
  CHECK(zero.received(1, {kind::counts, 1, "", 1}));
}

}  // namespace run_states
