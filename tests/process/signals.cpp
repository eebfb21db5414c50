// SPDX-License-Identifier: BSL-1.0
// Programs that block or catch signals, or collect children, and launch workers.
#include <doctest/doctest.h>

#include <core/run_all.hpp>
#include <process/child.hpp>
#include <string>
#include <vector>

#include <signal.h>

namespace signals_of_a_program {

using weft::testing::child;

const std::string program = WEFT_TEST_PROGRAMS "/signals";

/// The first two of them, unless everything runs.
std::vector<std::string> some(std::vector<std::string> all) {
  if (!weft::testing::run_all()) all.resize(2);
  return all;
}

TEST_CASE("signals: a run ends well whatever the program does with signals and children") {
  for (const auto& habit : some({"inherit", "handlers", "none", "block-child", "block-all",
                                 "ignore", "collect", "no-zombies", "wait-for-any"})) {
    CAPTURE(habit);
    child run({program, habit, "greet"});
    CHECK(run.wait() == 0);
    INFO(run.output());
    CHECK(run.count("] called, pid ") == 2);
    CHECK_FALSE(run.said("weft: "));
    CHECK(run.count("] begins with blocked 0 default default default\n") == 2);
    CHECK(run.said("\nas before\n"));
  }
}

TEST_CASE("signals: a killed worker is named, whatever the program does with children") {
  for (const auto& habit :
       some({"block-all", "no-zombies", "block-child", "inherit", "ignore", "collect"})) {
    CAPTURE(habit);
    child run({program, habit, "die"});
    CHECK(run.wait() == 1);
    INFO(run.output());
    CHECK(run.said("\nweft: worker 'worker1' (rank 1) was killed by signal 9 (Killed); the run "
                   "ends\n"));
    CHECK(run.said("\nas before\n"));
  }
  // Either of those who wait may learn how it ended.
  child run({program, "wait-for-any", "die"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("\nweft: worker 'worker1' (rank 1) "));
}

TEST_CASE("signals: SIGINT and SIGTERM end a run, also of a program that blocks or ignores them") {
  for (const auto& habit :
       some({"ignore", "wait-for-any", "none", "block-all", "inherit", "handlers"})) {
    for (const int signal : {SIGINT, SIGTERM}) {
      CAPTURE(habit);
      child run({program, habit, "wait"});
      run.read_until("] called, pid ", 2);
      run.kill(signal);
      CHECK(run.wait() == 128 + signal);
      INFO(run.output());
      CHECK(run.said("\nweft: the run was ended by "));
      CHECK(run.said("\nas before\n"));
    }
  }
}

TEST_CASE("signals: the program's own are back when launch_local throws") {
  child run({program, "handlers", "throw"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("threw no more lines\nas before\n"));
}

TEST_CASE("signals: a kernel or sandbox without pidfds is said in a sentence") {
  child run({program, "refused", "greet"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("weft: launching workers needs pidfd_open and waitid(P_PIDFD), which Linux 5.4 "
                 "has and this kernel or sandbox refuses; start the workers by torchrun or mpirun "
                 "instead: Function not implemented\n"));
  CHECK(run.said("as before\n"));
}

}  // namespace signals_of_a_program
