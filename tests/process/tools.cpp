// SPDX-License-Identifier: BSL-1.0
// Other programs that a worker starts, and what they inherit of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <core/run_all.hpp>
#include <process/child.hpp>
#include <process/store_at.hpp>
#include <string>

#include <signal.h>

namespace tools_of_a_worker {

using weft::testing::child;
using weft::testing::is_gone;

const std::string program = WEFT_TEST_PROGRAMS "/tools";

TEST_CASE(
    "tools: a program of weft that a worker starts runs as its own, and writes into no file") {
  for (const std::string rank : {"0", "1"}) {
    if (!weft::testing::run_all() && rank == "0") continue;
    child run({program, "within-" + rank});
    CHECK(run.wait() == 0);
    INFO(run.output());
    const std::string worker = "[worker" + rank + "] ";
    CHECK(run.count(worker + "tool ended with 0, wrote 0\n") == 3);
    CHECK(run.count(worker + "tool: rank 0 of 1\n") == 2);  // the second one by RANK and WORLD_SIZE
    for (const std::string inner : {"0", "1"}) {
      CHECK(run.said(worker + "[worker" + inner + "] tool: rank " + inner + " of 2\n"));
    }
    CHECK_FALSE(run.said("weft: "));
  }
}

TEST_CASE("tools: so does one that is started before the worker runs") {
  child run({program, "before"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK(run.count("] tool ended with 0\n") == 4);
  CHECK(run.count("] tool: rank 0 of 1\n") == 2);
  CHECK(run.count("] tool: rank 1 of 2\n") == 2);
  CHECK_FALSE(run.said("weft: "));
}

TEST_CASE("tools: one that has the RANK of a worker by another launcher is refused in a sentence") {
  const weft::testing::store_at store;
  auto of_rank = [&](const std::string& rank) {
    auto variables = store.environment();
    variables.emplace_back("RANK", rank);
    variables.emplace_back("WORLD_SIZE", "2");
    return variables;
  };
  child first({program, "within-1"}, of_rank("0"));
  child second({program, "within-1"}, of_rank("1"));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  INFO(second.output());
  CHECK(
      second.count("another process has registered as rank 1: each run needs a MASTER_PORT of its "
                   "own; if a worker starts another program of weft, remove RANK, WORLD_SIZE and "
                   "MASTER_PORT from that program's environment\n") == 2);
  CHECK(second.count("tool ended with 1, wrote 0\n") == 2);
}

TEST_CASE("tools: a process that a worker forks before it runs may do so in its place") {
  child run({program, "fork"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK_FALSE(run.said("weft: "));
  CHECK_FALSE(run.said("[worker0] [worker"));
}

TEST_CASE("tools: a worker may close the files that it has not opened") {
  child run({program, "closes"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK_FALSE(run.said("weft: "));
}

TEST_CASE("tools: launches do not nest for ever" * doctest::test_suite("all")) {
  child run({program, "nest"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK(run.count("] nested ended with 1\n") == 4);  // in the workers of workers
  CHECK(run.count("start the program without WEFT_LAUNCHED in its environment") == 4);
  CHECK(run.count("] nested ended with 0\n") == 2);
  child worker({program, "launch-in-worker"});
  CHECK(worker.wait() != 0);
  INFO(worker.output());
  CHECK(worker.said("launch_local was called in a worker that launch_local started: call it only "
                    "if placement_from_environment() returns nothing"));
}

TEST_CASE("tools: no open file of a worker is inherited") {
  for (const std::string transport : {"tcp", "unix"}) {
    for (const std::string io_threads : {"0", "1"}) {
      if (!weft::testing::run_all() && (transport == "tcp") != (io_threads == "0")) continue;
      CAPTURE(transport);
      CAPTURE(io_threads);
      child run({program, "descriptors", transport, io_threads});
      CHECK(run.wait() == 0);
      INFO(run.output());
      CHECK(run.said("[worker1] inherited by others:\n"));
      // But for a pipe of libtorch's store, which rank 0 serves.
      const std::string these = run.line_from("[worker0] inherited by others:");
      REQUIRE_FALSE(these.empty());
      CAPTURE(these);
      CHECK(std::count(these.begin(), these.end(), '=') <= 2);
      CHECK(these.find("socket:") == std::string::npos);
      CHECK(these.find("anon_inode:") == std::string::npos);
    }
  }
}

TEST_CASE("tools: a killed worker is missed at once though a process that it started lives on") {
  for (const std::string transport : {"tcp", "unix"}) {
    child run({program, "helper", transport});
    run.read_until(" of a helper\n");
    run.read_until(" of a worker\n");
    const auto helper = static_cast<pid_t>(run.number_after("started pid "));
    ::kill(static_cast<pid_t>(run.number_after("waits, pid ")), SIGKILL);
    CHECK(run.wait() == 0);  // it goes on without
    INFO(run.output());
    CHECK(run.said("[worker0] heard: "));
    CHECK(run.said("peer died: the peer closed the connection"));
    CHECK_FALSE(is_gone(helper));
    ::kill(helper, SIGKILL);
  }
}

}  // namespace tools_of_a_worker
