// SPDX-License-Identifier: BSL-1.0
// Real processes that are lost, of a run that goes on without some.
#include <doctest/doctest.h>

#include <algorithm>
#include <process/child.hpp>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

namespace process_losses {

using weft::testing::child;
using weft::testing::is_gone;

const std::string program = WEFT_TEST_PROGRAMS "/on_loss";
const std::string client = "\nweft: worker 'worker2' (rank 2) ";

/// Waits until all three have greeted each other; the process of that rank.
pid_t process_of(child& run, int rank) {
  for (const char* r : {"0", "1", "2"}) run.read_until(" is ready, rank " + std::string(r));
  const auto end = run.output().find(" is ready, rank " + std::to_string(rank));
  const auto begin = run.output().rfind("pid ", end) + 4;
  return static_cast<pid_t>(std::stol(run.output().substr(begin, end - begin)));
}
bool all_gone(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), is_gone);
}

/// The servers have gone on without the client, and ended well; nothing else was said of the run.
void check_went_on(const child& run, int status, const std::string& how) {
  INFO(run.output());
  CHECK(status == 0);
  for (const char* rank : {"0", "1"}) {
    const std::string server = "[worker" + std::string(rank) + "] ";
    CHECK(run.count(server + "rank " + rank + " heard peer_died and rref_owner_died\n") == 1);
    CHECK(run.count(server + "run returned 0\n") == 1);
  }
  CHECK(run.count(client + how + "; the run goes on without it\n") == 1);
  CHECK(run.said("\nrun returned 0\n"));
  CHECK_FALSE(run.said("; the run ends"));
  CHECK(all_gone(run.pids()));
}

TEST_CASE("process loss: a client that is killed does not end its servers") {
  child run({program, "wait"});
  ::kill(process_of(run, 2), SIGKILL);
  const int status = run.wait();
  check_went_on(run, status, "was killed by signal 9 (Killed)");
}

TEST_CASE("process loss: a client whose main throws says so, and does not end its servers") {
  child run({program, "throw"});
  const int status = run.wait();
  check_went_on(run, status, "failed: the user has left");
  CHECK(run.count("[worker2] run returned 1\n") == 1);
}

TEST_CASE("process loss: a client that leaves early does not end its servers") {
  child run({program, "exit"});
  const int status = run.wait();
  check_went_on(run, status, "left with status 0 before the run had ended");
}

TEST_CASE("process loss: a client that is stopped is left behind, and ended with the run" *
          doctest::test_suite("all")) {
  child run({program, "stop"});
  ::kill(process_of(run, 2), SIGSTOP);
  const int status = run.wait();
  INFO(run.output());
  CHECK(status == 0);
  for (const char* rank : {"0", "1"}) {
    CHECK(run.said("rank " + std::string(rank) + " heard peer_died and rref_owner_died\n"));
  }
  CHECK(run.count(client + "did not end with the run; it is killed\n") == 1);
  CHECK_FALSE(run.said("; the run ends"));
  CHECK(all_gone(run.pids()));
}

TEST_CASE("process loss: where no launcher of weft's says who is gone, rank 0 does") {
  const std::string id = "on_loss " + std::to_string(::getpid());
  const auto start = [&](const std::string& rank) {
    return child({program, "wait"}, {{"RANK", rank}, {"WORLD_SIZE", "3"}, {"WEFT_RUN_ID", id}});
  };
  child zero = start("0");
  child one = start("1");
  child two = start("2");
  for (child* const c : {&zero, &one, &two}) c->read_until(" is ready, rank ");
  two.kill(SIGKILL);
  CHECK(two.wait() == 128 + SIGKILL);
  CHECK(zero.wait() == 0);
  CHECK(one.wait() == 0);
  INFO(zero.output(), one.output());
  const auto told = [&zero](const std::string& why) {
    return zero.count("weft: worker0: worker 'worker2' (rank 2) was lost: " + why +
                      "; the run goes on without it\n");
  };
  CHECK(told("the peer closed the connection") +
            told("the connection failed: Connection reset by peer") ==
        1);
  CHECK_FALSE(one.said("was lost"));
}

TEST_CASE("process loss: a server that is killed ends the run, rank 0 or not") {
  for (const int rank : {0, 1}) {
    child run({program, "wait"});
    ::kill(process_of(run, rank), SIGKILL);
    CHECK(run.wait() == 1);
    INFO(run.output());
    const std::string name = "worker '" + ("worker" + std::to_string(rank)) + "'";
    CHECK(run.count("\nweft: " + name + " (rank " + std::to_string(rank) +
                    ") was killed by signal 9 (Killed); the run ends\n") == 1);
    CHECK_FALSE(run.said("goes on"));
    CHECK(all_gone(run.pids()));
  }
}

TEST_CASE("process loss: a server that is killed after the client is the one that ends the run") {
  child run({program, "hold"});
  const pid_t server = process_of(run, 1);
  ::kill(process_of(run, 2), SIGKILL);
  run.read_until("the run goes on without it\n");
  run.read_until(" heard peer_died and rref_owner_died\n", 2);
  ::kill(server, SIGKILL);
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.count(
            "\nweft: worker 'worker1' (rank 1) was killed by signal 9 (Killed); the run ends") ==
        1);
  CHECK(run.count(client) == 1);
}

}  // namespace process_losses
