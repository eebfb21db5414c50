// SPDX-License-Identifier: BSL-1.0
// Real processes, started by weft, by torchrun and by mpirun; killed, interrupted, orphaned.
#include <weft/wire/header.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <process/child.hpp>
#include <set>
#include <string>
#include <vector>

namespace processes {

using weft::testing::child;
using weft::testing::eventually;
using weft::testing::is_gone;

const std::string party = WEFT_TEST_PROGRAMS "/party";

bool all_gone(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), is_gone);
}

/// What the launcher itself says last.
std::string verdict(const child& run) { return run.last_line_from("weft: worker '"); }

TEST_CASE("launch: three processes greet each other and end well") {
  child run({party, "greet"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  for (const char* rank : {"0", "1", "2"}) {
    CHECK(run.said("[worker" + std::string(rank) + "] rank " + rank + " of 3 greeted all"));
  }
  const auto pids = run.pids();
  CHECK(std::set<pid_t>(pids.begin(), pids.end()).size() == 3);
}

TEST_CASE("launch: a killed worker ends the run, named by the launcher and by every survivor") {
  for (const std::string deed : {"die", "die-first"}) {
    const std::string victim = deed == "die" ? "2" : "0";
    child run({party, deed});
    CHECK(run.wait() == 1);
    INFO(run.output());
    CHECK(run.said("weft: worker 'worker" + victim + "'"));
    CHECK(run.said("was killed by signal 9"));
    CHECK(all_gone(run.pids()));
    if (deed != "die") continue;
    for (const std::string survivor : {"weft: worker0:", "weft: worker1:"}) {
      CHECK(run.count(survivor) == 1);
      CHECK(run.line_from(survivor).find("'worker2'") != std::string::npos);
    }
  }
}

TEST_CASE("launch: what a worker wrote before it was killed is not lost") {
  child run({party, "last-word"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("[worker2] a line by C++, one by C"));
  CHECK(run.said("[worker2] and another"));
}

TEST_CASE("launch: nor what one wrote that joined" * doctest::test_suite("all")) {
  child run({party, "last-word-joined"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("[worker2] before\n"));
  CHECK(run.said("[worker2] a line by C\n"));
}

TEST_CASE("launch: a worker that leaves without a word is named, too") {
  child run({party, "exit"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("worker 'worker2' (rank 2) exited with status 7"));
}

TEST_CASE("launch: a main that throws ends the run with its sentence everywhere") {
  child run({party, "throw"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.count("the data are gone") >= 3);
  CHECK(run.said("worker1"));
  CHECK(all_gone(run.pids()));
  // Whoever exits first.
  CHECK(verdict(run) == "weft: worker 'worker1' (rank 1) failed: the data are gone; the run ends");
}

TEST_CASE("launch: an environment that makes no sense is one sentence") {
  for (const char* bad :
       {"RANK=5 WORLD_SIZE=2", "RANK=abc WORLD_SIZE=2", "RANK=1", "WORLD_SIZE=2"}) {
    CAPTURE(bad);
    child run({"bash", "-c", std::string(bad) + " exec " + party + " greet"});
    CHECK(run.wait() == 1);
    INFO(run.output());
    CHECK(run.said("weft: run: invalid argument"));
    CHECK(run.said("RANK"));
    CHECK_FALSE(run.said("terminate"));
  }
}

TEST_CASE("launch: two workers of one name are refused by name") {
  child run({party, "twins"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("ranks 0 and 1 are both named 'twin' (options.name may be a function"));
}

TEST_CASE("launch: Ctrl-C and SIGTERM stop all processes, with a sentence and a status for each") {
  for (const int signal : {SIGINT, SIGTERM}) {
    child run({party, "wait"});
    run.read_until("greeted all", 3);
    const auto pids = run.pids();
    REQUIRE(pids.size() == 3);
    run.kill(signal);
    CHECK(run.wait() == 128 + signal);
    CHECK(all_gone(pids));
    INFO(run.output());
    const std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    CHECK(run.count("\nweft: the run was ended by " + name + "\n") == 1);
    CHECK(run.count("\nweft: ") == 1);  // no worker is blamed
  }
}

TEST_CASE("launch: an impatient user's second signal is not said, nor does it change the status") {
  child run({party, "wait"});
  run.read_until("greeted all", 3);
  const auto pids = run.pids();
  REQUIRE(pids.size() == 3);
  for (const pid_t p : pids) ::kill(p, SIGSTOP);  // so the launcher waits before it kills them
  run.kill(SIGINT);
  run.read_until("weft: the run was ended by SIGINT\n");
  run.kill(SIGTERM);
  CHECK(run.wait() == 128 + SIGINT);
  CHECK_FALSE(run.said("SIGTERM"));
  CHECK(all_gone(pids));
}

TEST_CASE("launch: when the launching process is killed, no orphan is left") {
  child run({party, "wait"});
  run.read_until("greeted all", 3);
  const auto pids = run.pids();
  REQUIRE(pids.size() == 3);
  run.kill(SIGKILL);
  CHECK(run.wait() == 128 + SIGKILL);
  CHECK(eventually([&] { return all_gone(pids); }));
}

TEST_CASE("launch: a process that a worker leaves behind does not hold up the end") {
  child run({party, "leave"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  const auto left = static_cast<pid_t>(run.number_after("[worker1] the last word, but for pid "));
  CHECK(!is_gone(left));
  ::kill(left, SIGKILL);
}

TEST_CASE("launch: a worker that is killed from outside while others wait for it") {
  child run({party, "return"});
  run.read_until("greeted all", 3);
  const auto pids = run.pids();
  REQUIRE(pids.size() == 3);
  ::kill(pids[1], SIGKILL);
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("was killed by signal 9"));
  CHECK(all_gone(pids));
}

TEST_CASE("launch: who leaves early with status 0 is named, not those who then fail") {
  child run({party, "exit-well"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(verdict(run) == "weft: worker 'worker1' (rank 1) left with status 0 before the run had "
                        "ended; the run ends");
}

TEST_CASE("launch: a greeting that comes while the process exits does not crash it") {
  child run({party, "prove-at-exit"});
  CHECK(run.wait() == 0);
}

TEST_CASE("launch: who never enters the run is named") {
  child run({party, "not-there", "5"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(verdict(run) == "weft: worker 'worker1' (rank 1) left with status 0 before the run had "
                        "ended; the run ends");
}

TEST_CASE("launch: one that dies before it meets the others ends the run, by name") {
  child first({party, "absent-0", "20"});
  child second({party, "absent-1", "20"});
  for (child* run : {&first, &second}) {
    const std::string rank = run == &first ? "0" : "1";
    CHECK(run->wait() == 1);
    INFO(run->output());
    CHECK(verdict(*run) == "weft: worker 'worker" + rank + "' (rank " + rank +
                               ") was killed by signal 9 (Killed); the run ends");
    CHECK(all_gone(run->pids()));
  }
}

TEST_CASE("launch: a worker that is stopped after the run does not hold up its end" *
          doctest::test_suite("all")) {
  child run({party, "stop"});
  CHECK(run.wait() == 1);  // shutdown deadline 1 s, grace 10 s; a child's patience is 120 s
  INFO(run.output());
  CHECK(verdict(run) == "weft: worker 'worker1' (rank 1) did not end with the run; it is killed");
  CHECK(all_gone(run.pids()));
}

TEST_CASE("launch: a worker that is stopped during the run is named by those who miss it" *
          doctest::test_suite("all")) {
  if (weft::wire_version < 2) return;  // which has no pings: nobody would notice
  child run({party, "freeze"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(verdict(run).starts_with("weft: worker 'worker1' (rank 1) was lost: "));
  CHECK(all_gone(run.pids()));
}

TEST_CASE("launch: a bar without line ends is not kept") {
  child run({party, "bar"});
  CHECK(run.wait() == 0);
  CHECK(run.said("done\n"));
  CHECK(run.output().size() < 1'000'000);  // of the 10 MB that were drawn
}

TEST_CASE("launch: a closed standard output is said, and is no signal") {
  child run({"bash", "-c", "exec " + party + " greet >&-"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK(run.said("weft: standard output is closed; what the workers print is lost"));
}

TEST_CASE("launch: standard output that is closed meanwhile ends the run with a sentence") {
  // Its reader has left before anybody speaks; what the launcher returns is written to standard
  // error.
  child piped({"bash", "-c",
               "left=$(mktemp -u); { for n in $(seq 6000); do [ -e $left ] && break; sleep 0.01; "
               "done; rm $left; " +
                   party + " wait; echo status $? >&2; } | { exec <&-; touch $left; }"});
  CHECK(piped.wait() == 0);
  INFO(piped.output());
  CHECK(piped.said("weft: standard output was closed; the run ends"));
  CHECK(piped.said("status 1"));
}

TEST_CASE("launch: too few descriptors are named, with the limit, by the one who lacks them") {
  child launcher({"bash", "-c", "ulimit -n 16; exec " + party + " greet"});
  CHECK(launcher.wait() == 1);
  INFO(launcher.output());
  CHECK(launcher.said("the launcher of 3 workers needs about"));
  CHECK(launcher.said("RLIMIT_NOFILE (ulimit -n) allows 16"));
  child worker({"bash", "-c", "ulimit -n 16; RANK=0 WORLD_SIZE=3 exec " + party + " greet 5"});
  CHECK(worker.wait() == 1);
  INFO(worker.output());
  CHECK(worker.said("this worker needs about"));
  CHECK(worker.said("RLIMIT_NOFILE (ulimit -n) allows 16"));
  child enough({"bash", "-c", "ulimit -S -n 16; exec " + party + " greet"});  // it may raise that
  CHECK(enough.wait() == 0);
}

#ifdef WEFT_TORCHRUN
/// torchrun.py by the Python that torchrun belongs to.
std::vector<std::string> torchrun(const std::string& deed) {
  const auto python = std::filesystem::path(WEFT_TORCHRUN).parent_path() / "python3";
  return {python.string(),
          std::string(WEFT_SOURCE_DIR) + "/tests/process/torchrun.py",
          std::string(WEFT_TEST_PROGRAMS) + "/stand_ins",
          "--no-python",
          "--nproc-per-node",
          "3",
          party,
          deed};
}

TEST_CASE("torchrun: starts, meets and ends well") {
  child run(torchrun("greet"));
  CHECK(run.wait() == 0);
  INFO(run.output());
  for (const char* rank : {"0", "1", "2"}) {
    CHECK(run.said("rank " + std::string(rank) + " of 3 greeted all"));
  }
}

TEST_CASE("torchrun: a main that throws fails the run and says why" * doctest::test_suite("all")) {
  child run(torchrun("throw"));
  CHECK(run.wait() != 0);
  INFO(run.output());
  CHECK(run.said("the data are gone"));
  CHECK(all_gone(run.pids()));
}
#endif

#ifdef WEFT_MPIRUN
TEST_CASE("mpirun: starts, meets and ends well") {
  child run({WEFT_MPIRUN, "-n", "3", party, "greet"},
            {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
             {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
             {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}});
  CHECK(run.wait() == 0);
  INFO(run.output());
  for (const char* rank : {"0", "1", "2"}) {
    CHECK(run.said("rank " + std::string(rank) + " of 3 greeted all"));
  }
}
#endif

}  // namespace processes
