// SPDX-License-Identifier: BSL-1.0
// The states of a run's end: their order, what each waits for, and for how long.
#include <weft/engine/shutdown/ending.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace ending_states {

using namespace std::chrono_literals;
using weft::duration;
using weft::time_point;
using weft::engine::ending;
using cause = ending::cause;
using condition = ending::condition;
using place = ending::place;
using state = ending::state;

constexpr time_point start = time_point(1h);
constexpr cause all_causes[] = {cause::all_done, cause::own_failure, cause::anothers_failure};
constexpr place all_places[] = {place::rank_0, place::elsewhere};

constexpr auto nothing = [](condition) { return false; };
constexpr auto everything = [](condition) { return true; };

/// All states that it goes through if each holds at once.
std::vector<state> way(place where, cause why) {
  ending e(where, why, start, start + 30s);
  std::vector<state> out{e.current_state()};
  while (e.step(everything, start)) out.push_back(e.current_state());  // bounded: by the states
  return out;
}

TEST_CASE("ending states: the order, by who ends and why") {
  CHECK(way(place::elsewhere, cause::all_done) ==
        std::vector{state::sending_rest, state::closing, state::over});
  CHECK(way(place::rank_0, cause::all_done) ==
        std::vector{state::sending_rest, state::leaving_last, state::closing, state::over});
  const std::vector failed{state::telling,      state::failing_calls, state::stopping_main,
                           state::sending_rest, state::closing,       state::over};
  CHECK(way(place::elsewhere, cause::anothers_failure) == failed);
  auto dismissed = failed;
  dismissed.insert(dismissed.begin() + 1, state::awaiting_dismissal);
  CHECK(way(place::elsewhere, cause::own_failure) == dismissed);
  auto last = failed;
  last.insert(last.end() - 2, state::leaving_last);
  for (const cause why : {cause::own_failure, cause::anothers_failure}) {
    CHECK(way(place::rank_0, why) == last);  // nobody dismisses rank 0
  }
}

TEST_CASE("ending states: each waits for what it says, and for nothing else") {
  for (const place where : all_places) {
    for (const cause why : all_causes) {
      ending e(where, why, start, start + 30s);
      std::set<state> seen;
      while (e.current_state() != state::over) {  // bounded: by the states
        CHECK(seen.insert(e.current_state()).second);
        const condition awaited = e.awaits();
        const state at = e.current_state();
        const auto all_but_it = [&](condition c) { return c != awaited; };
        const auto it_alone = [&](condition c) { return c == awaited; };
        CHECK_FALSE(e.step(all_but_it, start));
        CHECK_FALSE(e.step(all_but_it, start + 1ms));
        CHECK(e.current_state() == at);
        CHECK(e.step(it_alone, start + 2ms));
      }
      CHECK_FALSE(e.step(everything, start + 1h));
    }
  }
}

TEST_CASE("ending states: what each of them waits for") {
  ending e(place::elsewhere, cause::own_failure, start, start + 30s);
  for (const condition c :
       {condition::sent_to_rank_0, condition::link_to_rank_0_down, condition::losses_told,
        condition::main_ended, condition::all_sent, condition::main_ended}) {
    CHECK(e.awaits() == c);
    CHECK(e.step(everything, start));
  }
  ending zero(place::rank_0, cause::anothers_failure, start, start + 30s);
  CHECK(zero.awaits() == condition::all_sent);
  for (int i = 0; zero.current_state() != state::leaving_last && i < 20; ++i)
    zero.step(everything, start);
  CHECK(zero.awaits() == condition::others_left);
  ending well(place::elsewhere, cause::all_done, start, start + 30s);
  CHECK(well.awaits() == condition::all_sent);
}

/// How long it stays in each state if nothing ever holds, and doing takes no time.
std::vector<std::pair<state, duration>> patience(place where, cause why, duration until_deadline) {
  ending e(where, why, start, start + until_deadline);
  std::vector<std::pair<state, duration>> out;
  time_point now = start;
  while (e.current_state() != state::over) {  // bounded: by the states
    const time_point began = now;
    const state at = e.current_state();
    // bounded: no state lasts longer than the deadline
    while (!e.step(nothing, now)) now += 50ms;
    out.emplace_back(at, now - began);
  }
  return out;
}
using times = std::vector<std::pair<state, duration>>;

TEST_CASE("ending states: how long each of them waits at most") {
  CHECK(patience(place::rank_0, cause::anothers_failure, 30s) == times{{state::telling, 1s},
                                                                       {state::failing_calls, 1s},
                                                                       {state::stopping_main, 1s},
                                                                       {state::sending_rest, 1s},
                                                                       {state::leaving_last, 5s},
                                                                       {state::closing, 100ms}});
  // Rank 0 has all the time to hear of it; nothing is left for the rest.
  CHECK(patience(place::elsewhere, cause::own_failure, 30s) ==
        times{{state::telling, 30s},
              {state::awaiting_dismissal, 0s},
              {state::failing_calls, 0s},
              {state::stopping_main, 0s},
              {state::sending_rest, 0s},
              {state::closing, 0s}});
  CHECK(patience(place::rank_0, cause::all_done, 30s) ==
        times{{state::sending_rest, 30s}, {state::leaving_last, 0s}, {state::closing, 0s}});
}

TEST_CASE("ending states: nothing lasts beyond the deadline, which is at least a second away") {
  CHECK(patience(place::rank_0, cause::own_failure, 1500ms) == times{{state::telling, 1s},
                                                                     {state::failing_calls, 500ms},
                                                                     {state::stopping_main, 0s},
                                                                     {state::sending_rest, 0s},
                                                                     {state::leaving_last, 0s},
                                                                     {state::closing, 0s}});
  // The shutdown deadline passed before the run was over.
  CHECK(patience(place::elsewhere, cause::all_done, -10s) ==
        times{{state::sending_rest, 1s}, {state::closing, 0s}});
}

TEST_CASE("ending states: the time of a state begins when what is done in it is done") {
  ending e(place::rank_0, cause::anothers_failure, start, start + 30s);
  CHECK(e.by(start) == start + 1s);
  CHECK_FALSE(e.step(nothing, start + 3s));  // telling took so long
  CHECK_FALSE(e.step(nothing, start + 3999ms));
  CHECK(e.step(nothing, start + 4s));
  CHECK(e.current_state() == state::failing_calls);
  CHECK_FALSE(e.step(nothing, start + 5s));
  CHECK(e.step(everything, start + 5s));
  CHECK(e.current_state() == state::stopping_main);
  CHECK(e.by(start + 5s) == start + 6s);  // for handing on
  CHECK(e.by(start + 29500ms) == start + 30s);
}

TEST_CASE("ending states: no deadline is too far") {
  ending e(place::elsewhere, cause::all_done, start, time_point::max());
  CHECK(e.by(start) == time_point::max());
  CHECK(e.step(everything, start));
  CHECK_FALSE(e.step(nothing, start + 1000h));
  CHECK(e.step(everything, start + 1000h));
}

}  // namespace ending_states
