// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/shutdown/shutdown.hpp>

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

  /// The run goes on without `may_go`.
  explicit world(std::uint32_t size, const std::vector<std::uint32_t>& may_go = {})
      : ended(size, false), lost(size), counts(size) {
    for (std::uint32_t r = 0; r < size; ++r) {
      workers.emplace_back(r, size);
      for (const std::uint32_t who : may_go) workers.back().may_go(who);
    }
  }
  void act(std::uint32_t who, const shutdown_protocol::actions& a) {
    for (const auto& [to, m] : a.send) inflight.push_back({who, to, m});
    if (a.lost) lost[who].push_back(a.lost->first);
    if (a.count) {
      ++asked;
      act(who, workers[who].counted(*a.count, counts[who]));
    }
    if (a.ask_again) pause = a.ask_again;
    if (a.wait_for) waits.push_back(*a.wait_for);
    if (a.cut) {
      cuts.push_back(*a.cut);
      act(who, workers[who].link_cut(a.cut->between, "their link broke"));
    }
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
  std::vector<weft::engine::link_ends> waits;  // rank 0's
  std::vector<weft::engine::cut_link> cuts;
};

/// All have heard that `who` is gone, once, and go on.
void check_goes_on_without(std::uint32_t who, const world& w) {
  for (std::uint32_t r = 0; r < w.workers.size(); ++r) {
    if (r == who) continue;
    CAPTURE(r);
    CHECK_FALSE(w.ended[r]);
    CHECK_FALSE(w.workers[r].failure());
    CHECK(w.workers[r].gone(who));
    CHECK(w.lost[r] == std::vector<std::uint32_t>{who});
  }
}
/// The mains of all but `who` return, and the run ends well for them.
void check_ends_well_without(std::uint32_t who, world& w) {
  for (std::uint32_t r = 0; r < w.workers.size(); ++r) {
    if (r != who) w.act(r, w.workers[r].main_returned());
  }
  w.deliver_all();
  for (std::uint32_t r = 0; r < w.workers.size(); ++r) {
    if (r == who) continue;
    CAPTURE(r);
    CHECK(w.ended[r]);
    CHECK_FALSE(w.workers[r].failure());
  }
}

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

TEST_CASE(
    "run state: a loss that only one worker's main sees ends the run, if rank 0 hears no more") {
  world w(4);
  w.act(2, w.workers[2].main_failed(3, "the link broke"));
  w.deliver_all();
  REQUIRE(w.waits.size() == 1);
  for (const bool e : w.ended) CHECK_FALSE(e);
  w.act(0, w.workers[0].unanswered(w.waits.front()));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u, 2u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 3);
  }
  CHECK(w.lost[0] == std::vector<std::uint32_t>{3});  // its link is closed: so it hears of it
}

/// Both ends of the link between 1 and 2 say that it broke: 1 had posted ten, of which seven ran.
void cut_between_1_and_2(world& w) {
  w.act(1, w.workers[1].link_lost(2, "reset"));
  w.act(1, w.workers[1].counted_posts({2, 10, 4, true}, 0, "reset"));
  w.deliver_all();
  w.act(2, w.workers[2].link_lost(1, "reset by the peer"));
  w.act(2, w.workers[2].counted_posts({1, 4, 7, true}, 0, "reset by the peer"));
  w.deliver_all();
}

TEST_CASE("run state: a link that breaks between two others ends the run, and posts are counted") {
  for (const bool returned : {false, true}) {
    CAPTURE(returned);
    world w(4);
    for (std::uint32_t r = 0; returned && r < 3; ++r) w.act(r, w.workers[r].main_returned());
    cut_between_1_and_2(w);
    REQUIRE(w.cuts.size() == 1);
    CHECK(w.cuts[0].between == weft::engine::link_ends{1, 2});
    CHECK(w.cuts[0].why == "reset (at the other end: reset by the peer)");
    CHECK(w.cuts[0].up.lost() == 3);
    CHECK(w.cuts[0].down.lost() == 0);
    for (std::uint32_t r = 0; r < 4; ++r) {
      CAPTURE(r);
      CHECK(w.ended[r]);
      REQUIRE(w.workers[r].failure());
      CHECK(w.workers[r].failure()->first == 2);
      CHECK(w.workers[r].failure()->second == "their link broke");
    }
  }
}

TEST_CASE("run state: a link that breaks leaves the one behind that may go") {
  for (const std::uint32_t goes : {1u, 2u}) {
    world w(4, {goes});
    cut_between_1_and_2(w);
    REQUIRE(w.cuts.size() == 1);
    check_goes_on_without(goes, w);
    CHECK(w.ended[goes]);
    CHECK(w.workers[goes].failure()->first == goes);
    check_ends_well_without(goes, w);
  }
  world both(4, {1, 2});
  cut_between_1_and_2(both);
  check_goes_on_without(2, both);
}

TEST_CASE("run state: a broken link whose other end says nothing is judged by one") {
  world w(4);
  w.act(1, w.workers[1].counted_posts({2, 10, 4, true}, 0, "reset"));
  w.deliver_all();
  REQUIRE(w.waits.size() == 1);
  for (const bool e : w.ended) CHECK_FALSE(e);
  CHECK(w.workers[0].waits_for() == w.waits.front());
  w.act(0, w.workers[0].unanswered(w.waits.front()));
  w.deliver_all();
  REQUIRE(w.cuts.size() == 1);
  CHECK(w.cuts[0].up.lost() == 10);  // at most
  CHECK_FALSE(w.cuts[0].up.ran);
  CHECK_FALSE(w.cuts[0].down.sent);
  for (const bool e : w.ended) CHECK(e);
  CHECK_FALSE(w.workers[0].waits_for());
  // Of a link that was never there, the other end knows nothing.
  world never(4);
  never.act(1, never.workers[1].counted_posts({2, 10, 0, false}, 0, "no common transport"));
  never.deliver_all();
  REQUIRE(never.cuts.size() == 1);
  CHECK(never.cuts[0].up.lost() == 10);
  CHECK(never.cuts[0].up.ran == 0);
  for (const bool e : never.ended) CHECK(e);
}

TEST_CASE("run state: an end that is heard late still says what was lost") {
  world w(4, {1, 2});
  w.act(2, w.workers[2].counted_posts({1, 0, 7, true}, 1, "reset"));
  w.deliver_all();
  REQUIRE(w.waits.size() == 1);
  w.act(0, w.workers[0].unanswered(w.waits.front()));
  w.deliver_all();
  REQUIRE(w.cuts.size() == 1);
  CHECK_FALSE(w.cuts[0].up.sent);
  check_goes_on_without(2, w);
  w.act(1, w.workers[1].counted_posts({2, 10, 0, true}, 0, "reset"));
  w.deliver_all();
  REQUIRE(w.cuts.size() == 2);
  CHECK(w.cuts[1].up.lost() == 2);  // one more had begun
  CHECK(w.cuts[1].up.run == 1);
  w.act(1, w.workers[1].counted_posts({2, 10, 0, true}, 0, "reset"));
  w.deliver_all();
  CHECK(w.cuts.size() == 2);
  check_ends_well_without(2, w);
}

TEST_CASE("run state: a broken link to one that is lost then keeps nobody") {
  world w(4, {2});
  w.act(1, w.workers[1].counted_posts({2, 10, 4, true}, 0, "reset"));
  w.deliver_all();
  REQUIRE(w.waits.size() == 1);
  w.act(0, w.workers[0].link_lost(2, "killed"));
  w.deliver_all();
  w.act(0, w.workers[0].unanswered(w.waits[0]));
  CHECK_FALSE(w.workers[0].waits_for());
  CHECK(w.cuts.empty());
  // Whom a main blames then is judged by that alone.
  w.act(3, w.workers[3].main_failed(1, "its call failed"));
  w.deliver_all();
  REQUIRE(w.waits.size() == 2);
  w.act(0, w.workers[0].unanswered(w.waits[1]));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u, 3u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 1);
  }
}

TEST_CASE("run state: a worker that rank 0 loses, too, is lost, and no link") {
  world w(4);
  w.act(1, w.workers[1].counted_posts({2, 10, 4, true}, 0, "reset"));
  w.act(1, w.workers[1].main_failed(2, "its call failed"));
  w.deliver_all();
  CHECK(w.waits.size() == 2);  // for the other end, and for a reason to lose 2
  w.act(0, w.workers[0].link_lost(2, "killed"));
  w.deliver_all();
  CHECK(w.cuts.empty());
  for (const std::uint32_t r : {0u, 1u, 3u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->second == "killed");
  }
  CHECK_FALSE(w.workers[0].unanswered({1, 2}).cut);
}

TEST_CASE("run state: what was lost on a link is said, though one end was left behind before") {
  world w(4, {1, 2});
  w.act(1, w.workers[1].counted_posts({2, 10, 4, true}, 0, "reset"));
  w.act(1, w.workers[1].main_failed(2, "its call failed"));  // it leaves the run
  w.deliver_all();
  check_goes_on_without(1, w);
  w.act(2, w.workers[2].counted_posts({1, 4, 7, true}, 0, "closed"));
  w.deliver_all();
  REQUIRE(w.cuts.size() == 1);
  CHECK(w.cuts[0].up.lost() == 3);
  check_goes_on_without(1, w);
  // Who is found dead says nothing, and of what was sent to it nothing is said.
  w.act(2, w.workers[2].counted_posts({3, 1, 0, true}, 0, "closed"));
  w.deliver_all();
  CHECK(w.waits.size() == 2);
}

TEST_CASE("run state: who leaves at rank 0's word passes it on, and whoever hears it believes it") {
  world w(4);
  CHECK_FALSE(w.workers[2].final_message());
  w.act(0, w.workers[0].link_lost(3, "it closed the connection"));
  const auto word = w.inflight.at(1);
  REQUIRE(word.to == 2);
  w.act(2, *w.workers[2].received(0, word.m));
  // Rank 0's word to worker 1 is slower than what worker 2 tells it.
  const auto passed = w.workers[2].final_message();
  REQUIRE(passed);
  w.act(1, *w.workers[1].received(2, *passed));
  for (const std::uint32_t r : {1u, 2u}) {
    CHECK(w.ended[r]);
    CHECK(w.lost[r] == std::vector<std::uint32_t>{3});
    CHECK(w.workers[r].failure()->first == 3);
    CHECK(w.workers[r].failure()->second == "it closed the connection");
    CHECK(w.workers[r].final_message());
  }
  w.deliver_all();  // and then it says nothing new
  CHECK_FALSE(w.workers[0].final_message());
  // Also about oneself, whom rank 0 tells of it only if it was cut off.
  shutdown_protocol cut_off(1, 3);
  const auto told = cut_off.received(2, {kind::lost, 1, "no sign of life"});
  REQUIRE(told);
  CHECK(told->end);
  CHECK_FALSE(told->lost);
  CHECK(cut_off.failure()->first == 1);
}

TEST_CASE("run state: nobody passes on what it believes by itself") {
  shutdown_protocol lost_rank_0(1, 3);
  static_cast<void>(lost_rank_0.link_lost(0, "it closed the connection"));
  CHECK_FALSE(lost_rank_0.final_message());
  shutdown_protocol failed(1, 3);
  static_cast<void>(failed.main_failed(1, "boom"));
  CHECK_FALSE(failed.final_message());
  shutdown_protocol well(1, 3);
  static_cast<void>(well.received(0, {kind::ended, 1, ""}));
  CHECK_FALSE(well.final_message());
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
  const weft::engine::work_report of_2{{2, 1, 1, true}};
  CHECK(zero.received(1, {kind::cut_off, 2, "", 0, of_2}));
  CHECK_FALSE(one.received(2, {kind::cut_off, 2, "", 0, of_2}));   // for rank 0
  CHECK_FALSE(zero.received(2, {kind::cut_off, 2, "", 0, of_2}));  // of itself
  CHECK_FALSE(zero.received(1, {kind::cut_off, 0, "", 0, {{0, 1, 1, true}}}));
  CHECK_FALSE(zero.received(1, {kind::cut_off, 3, "", 0, {{3, 1, 1, true}}}));
  CHECK_FALSE(zero.received(2, {kind::cut_off, 1, "", 0, of_2}));  // counts of another
  CHECK_FALSE(zero.received(2, {kind::cut_off, 1, "", 0, {}}));
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

// ── runs that go on ──

TEST_CASE("run state: a loss that the run bears is told to all, and it ends well without") {
  for (const bool returned_before : {false, true}) {
    world w(4, {2});
    if (returned_before) w.act(2, w.workers[2].main_returned());
    w.deliver_all();
    w.act(0, w.workers[0].link_lost(2, "killed"));
    CHECK(w.inflight.size() == 2);
    CHECK(w.inflight.front().m.what == kind::gone);
    CHECK(w.inflight.front().m.why == "killed");
    w.deliver_all();
    check_goes_on_without(2, w);
    CHECK(w.workers[0].running() == std::vector<std::uint32_t>{0, 1, 3});
    w.act(0, w.workers[0].link_lost(2, "killed"));  // told once
    w.act(1, w.workers[1].link_lost(2, "killed"));
    CHECK(w.inflight.empty());
    check_ends_well_without(2, w);
    CHECK_FALSE(w.ended[2]);
  }
}

TEST_CASE("run state: without whom the run does not go on, and rank 0, end it as ever") {
  world w(3, {0, 2});
  w.act(0, w.workers[0].link_lost(1, "gone"));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 2u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 1);
  }
  world without_zero(3, {0, 1, 2});
  without_zero.act(1, without_zero.workers[1].link_lost(0, "gone"));
  CHECK(without_zero.ended[1]);
  CHECK(without_zero.workers[1].failure()->first == 0);
  world zero_fails(3, {0, 1, 2});
  zero_fails.act(0, zero_fails.workers[0].main_failed(0, "boom"));
  zero_fails.deliver_all();
  for (std::uint32_t r = 0; r < 3; ++r) {
    CHECK(zero_fails.ended[r]);
    CHECK(zero_fails.workers[r].failure()->first == 0);
  }
}

TEST_CASE("run state: a main that fails where the run bears it leaves alone, with its own error") {
  world w(3, {1});
  w.act(1, w.workers[1].main_failed(1, "boom"));
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->second == "boom");
  CHECK_FALSE(w.workers[1].final_message());
  w.deliver_all();
  check_goes_on_without(1, w);
  w.act(0, w.workers[0].link_lost(1, "it closed the connection"));
  w.act(1, w.workers[1].link_lost(0, "it closed the connection"));
  CHECK(w.inflight.empty());
  CHECK(w.workers[1].failure()->first == 1);
  check_ends_well_without(1, w);
}

TEST_CASE("run state: who cannot bear a loss that the run bears has failed itself") {
  world w(4, {2});
  // Worker 1 sees the loss before rank 0 does.
  w.act(1, w.workers[1].main_failed(2, "a call to it failed"));
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->first == 1);
  w.deliver_all();
  for (const std::uint32_t r : {0u, 2u, 3u}) {
    CHECK(w.ended[r]);
    CHECK(w.workers[r].failure()->first == 1);
    CHECK(w.workers[r].failure()->second == "a call to it failed");
  }
  world at_zero(3, {2});
  at_zero.act(0, at_zero.workers[0].link_lost(2, "killed"));
  at_zero.act(0, at_zero.workers[0].main_failed(2, "a call to it failed"));
  at_zero.deliver_all();
  CHECK(at_zero.workers[0].failure()->first == 0);
  CHECK(at_zero.workers[1].failure()->first == 0);
  // Where both may go, the run bears that, too.
  world both(4, {1, 2});
  both.act(1, both.workers[1].main_failed(2, "a call to it failed"));
  both.deliver_all();
  check_goes_on_without(1, both);
  CHECK_FALSE(both.workers[0].gone(2));
}

TEST_CASE("run state: one that may go is left behind where it alone lost another, and is told") {
  for (const std::uint32_t blamed : {0u, 1u}) {
    CAPTURE(blamed);
    world w(4, {2});
    w.act(2, w.workers[2].main_failed(blamed, "the link broke"));
    CHECK_FALSE(w.ended[2]);  // rank 0 may know better
    w.deliver_all();
    check_goes_on_without(2, w);
    CHECK_FALSE(w.workers[0].gone(1));
    CHECK(w.ended[2]);
    REQUIRE(w.workers[2].failure());
    CHECK(w.workers[2].failure()->first == 2);
    CHECK(w.workers[2].failure()->second == "the link broke");
    CHECK(w.lost[2].empty());
    check_ends_well_without(2, w);
  }
  // If the other is lost indeed, rank 0 sees it by itself.
  world late(4, {2});
  late.act(2, late.workers[2].main_failed(1, "the link broke"));
  late.deliver_all();
  late.act(0, late.workers[0].link_lost(1, "killed"));
  late.deliver_all();
  for (const std::uint32_t r : {0u, 3u}) {
    CHECK(late.ended[r]);
    CHECK(late.workers[r].failure()->first == 1);
  }
  world early(4, {2});
  early.act(2, early.workers[2].main_failed(1, "the link broke"));
  early.act(0, early.workers[0].link_lost(1, "killed"));
  early.deliver_all();
  for (const std::uint32_t r : {0u, 2u, 3u}) {
    CHECK(early.ended[r]);
    CHECK(early.workers[r].failure()->first == 1);
  }
}

TEST_CASE("run state: what one that may go passes on counts only once rank 0 is lost") {
  world w(4, {2});
  const shutdown_message passed{kind::lost, 3, "killed"};
  w.act(1, *w.workers[1].received(2, passed));
  CHECK_FALSE(w.ended[1]);
  CHECK_FALSE(w.workers[1].failure());
  CHECK(w.lost[1].empty());
  CHECK_FALSE(w.workers[1].final_message());
  // Rank 0 knows better.
  world better(4, {2});
  better.act(1, *better.workers[1].received(2, passed));
  better.act(1, *better.workers[1].received(0, {kind::lost, 0, "boom"}));
  CHECK(better.workers[1].failure()->first == 0);
  // The link to rank 0 closes because rank 0 has left, for that reason.
  w.act(1, w.workers[1].link_lost(0, "it closed the connection"));
  CHECK(w.ended[1]);
  CHECK(w.lost[1] == std::vector<std::uint32_t>{3});
  CHECK(w.workers[1].failure()->first == 3);
  CHECK(w.workers[1].failure()->second == "killed");
  // Without whom the run does not go on is believed at once.
  w.act(3, *w.workers[3].received(1, {kind::lost, 0, "boom"}));
  CHECK(w.ended[3]);
  CHECK(w.workers[3].failure()->first == 0);
}

TEST_CASE("run state: of a gone worker nobody hears any more, and it breaks no protocol") {
  world w(3, {2});
  w.act(0, w.workers[0].link_lost(2, "no sign of life"));
  w.inflight.clear();
  for (const shutdown_message& m :
       {shutdown_message{kind::finished, 2, {}}, shutdown_message{kind::failed, 2, "boom"},
        shutdown_message{kind::failed, 1, "it is gone"},
        shutdown_message{kind::counts, 2, {}, 1, {}}}) {
    const auto a = w.workers[0].received(2, m);
    REQUIRE(a);
    CHECK(a->send.empty());
    CHECK_FALSE(a->lost);
    CHECK_FALSE(a->end);
  }
  CHECK_FALSE(w.workers[0].over());
  // What others say of it: whoever blames it has failed itself.
  const auto blamed = w.workers[0].received(1, {kind::failed, 2, "a call to it failed"});
  REQUIRE(blamed);
  CHECK(blamed->end);
  CHECK(w.workers[0].failure()->first == 1);
}

TEST_CASE("run state: a worker gone while the requests are counted holds nobody up") {
  for (const bool answered : {false, true}) {
    world w(3, {2});
    w.counts[0] = {{2, 5, 0, false}};  // which it will not do
    for (std::uint32_t r = 0; r < 3; ++r) w.act(r, w.workers[r].main_returned());
    while (!w.inflight.empty()) {
      const world::flight f = w.inflight.front();
      w.inflight.pop_front();
      if (f.from == 2 && f.m.what == kind::counts && !answered) continue;  // it died before
      w.act(f.to, *w.workers[f.to].received(f.from, f.m));
    }
    CHECK_FALSE(w.ended[0]);
    CHECK(w.pause.has_value() == answered);
    w.act(0, w.workers[0].link_lost(2, "killed"));
    w.deliver_all();
    if (answered) {
      CHECK_FALSE(w.ended[0]);  // the pause
      w.act(0, w.workers[0].ask_again());
      w.deliver_all();
    }
    for (const std::uint32_t r : {0u, 1u}) {
      CHECK(w.ended[r]);
      CHECK_FALSE(w.workers[r].failure());
    }
    CHECK(w.lost[1] == std::vector<std::uint32_t>{2});
  }
}

TEST_CASE("run state: the last main that was waited for may be that of a gone worker") {
  world w(3, {1, 2});
  for (const std::uint32_t r : {0u, 1u}) w.act(r, w.workers[r].main_returned());
  w.deliver_all();
  CHECK(w.asked == 0);
  w.act(0, w.workers[0].link_lost(2, "killed"));
  w.deliver_all();
  CHECK(w.ended[0]);
  CHECK(w.ended[1]);
  CHECK(w.asked == 4);  // twice each
  world alone(3, {1, 2});
  alone.act(0, alone.workers[0].link_lost(1, "killed"));
  alone.act(0, alone.workers[0].main_returned());
  alone.act(0, alone.workers[0].link_lost(2, "killed"));
  CHECK(alone.ended[0]);
  CHECK_FALSE(alone.workers[0].failure());
}

TEST_CASE("run state: who does not answer at the end is left behind where the run bears it") {
  world w(3, {2});
  for (std::uint32_t r = 0; r < 3; ++r) w.act(r, w.workers[r].main_returned());
  while (!w.inflight.empty()) {
    const world::flight f = w.inflight.front();
    w.inflight.pop_front();
    if (f.to != 2) w.act(f.to, *w.workers[f.to].received(f.from, f.m));
  }
  const auto missing = w.workers[0].unfinished();
  REQUIRE(missing);
  REQUIRE(missing->unanswered == std::vector<std::uint32_t>{2});
  w.act(0, w.workers[0].exclude(2, "it did not answer"));
  w.deliver_all();
  for (const std::uint32_t r : {0u, 1u}) {
    CHECK(w.ended[r]);
    CHECK_FALSE(w.workers[r].failure());
  }
  // It is told, and ends by itself without a word to others.
  CHECK(w.ended[2]);
  CHECK(w.workers[2].failure()->first == 2);
  CHECK(w.lost[2].empty());
  CHECK_FALSE(w.workers[2].final_message());
  // One that may not go is cut.
  world strict(3);
  for (std::uint32_t r = 0; r < 3; ++r) strict.act(r, strict.workers[r].main_returned());
  strict.act(0, strict.workers[0].exclude(2, "it did not answer"));
  CHECK(strict.workers[0].failure()->first == 2);
}

TEST_CASE("run state: what others say of an end is shown in one line, and not for ever") {
  using weft::engine::fit_to_show;
  using weft::engine::most_words;
  CHECK(fit_to_show("boom") == "boom");
  CHECK(fit_to_show("na\xc3\xafve") == "na\xc3\xafve");
  CHECK(fit_to_show("one\ntwo\r\tthree") == "one two  three");
  CHECK(fit_to_show(std::string("a\x1b[2J\x7f\0b", 8)) == "a?[2J??b");
  CHECK(fit_to_show(std::string(most_words + 1, 'x')).size() == most_words);
}

TEST_CASE("run state: who cannot bear that one left names whom that one named") {
  world w(4, {2});
  w.act(1, *w.workers[1].received(2, {kind::lost, 3, "killed"}));
  w.act(1, w.workers[1].main_failed(2, "it closed the connection"));
  CHECK(w.ended[1]);
  CHECK(w.workers[1].failure()->first == 3);
  REQUIRE(w.inflight.size() == 1);  // rank 0, which may know better, hears what happened here
  CHECK(w.inflight.front().m.rank == 1);
  CHECK_FALSE(w.workers[1].final_message());
}

TEST_CASE("run state: only rank 0 says who is gone, and never itself") {
  shutdown_protocol zero(0, 3);
  shutdown_protocol one(1, 3);
  CHECK_FALSE(zero.received(1, {kind::gone, 2, ""}));
  CHECK_FALSE(one.received(2, {kind::gone, 2, ""}));
  CHECK_FALSE(one.received(0, {kind::gone, 0, ""}));
  CHECK_FALSE(one.received(0, {kind::gone, 3, ""}));
  CHECK_FALSE(one.gone(2));
  const auto first = one.received(0, {kind::gone, 2, "killed"});
  REQUIRE(first);
  REQUIRE(first->lost);
  CHECK(first->lost->first == 2);
  CHECK(first->lost->second == "killed");
  CHECK_FALSE(first->end);
  const auto again = one.received(0, {kind::gone, 2, "killed"});
  REQUIRE(again);
  CHECK_FALSE(again->lost);
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
