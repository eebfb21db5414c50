// SPDX-License-Identifier: BSL-1.0
// `run` called more than once by a program, and with more workers than a host may have.
#include <weft/engine/launch/impl/launch.hpp>
#include <weft/rpc/options.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <process/child.hpp>
#include <string>
#include <utility>
#include <vector>

namespace runs_of_a_program {

using weft::testing::child;

const std::string program = WEFT_TEST_PROGRAMS "/runs";
const std::string second =
    "run was called a second time in this process: a program of several processes may call it "
    "only once; do everything in one run, or start the program again";

TEST_CASE("runs: a second one of several processes is refused by the workers and the launcher") {
  child run({program, "tcp:2", "tcp:2"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  for (const char* rank : {"0", "1"}) {
    const std::string worker = "[worker" + std::string(rank) + "] ";
    CHECK(run.count(worker + "call 0: rank " + rank + " of 2\n") == 1);
    CHECK(run.count(worker + "call 0 returned 0\n") == 1);
    CHECK(run.count(worker + "weft: worker" + rank + ": ") == 1);
  }
  // Two workers, the launcher's word about one of them, and the launcher's own second call.
  CHECK(run.count(second) == 4);
  CHECK(run.said("failed: " + second + "; the run ends\n"));
  CHECK(run.said("\ncall 0 returned 1\n"));
  CHECK(run.said("\nweft: run: invalid argument"));
  CHECK_FALSE(run.said("call 1: "));
}

TEST_CASE("runs: processes are not started where a run of one worker stands before") {
  child run({program, "tcp:1", "tcp:2"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.count("call 0: rank 0 of 1\n") == 1);
  CHECK(run.count(second) == 1);
  CHECK_FALSE(run.said("[worker"));
}

TEST_CASE("runs: of two beside each other one is refused, in every process") {
  child run({program, "beside", "tcp:2", "tcp:2"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  for (const char* who : {"[worker0] weft: ", "[worker1] weft: ", "weft: run: "}) {
    CHECK(run.line_from(who).ends_with(second));
  }
  for (const char* rank : {"0", "1"}) {
    CHECK(run.count(": rank " + std::string(rank) + " of 2\n") == 1);
  }
}

TEST_CASE("runs: a worker that another launcher started is refused its second one") {
  child run({"bash", "-c",
             "export WEFT_RUN_ID=$$ WORLD_SIZE=2; RANK=1 " + program + " tcp:1 tcp:1 & RANK=0 " +
                 program + " tcp:1 tcp:1; first=$?; wait $!; exit $((10 * first + $?))"});
  CHECK(run.wait() == 11);
  INFO(run.output());
  CHECK(run.count("call 0 returned 0\n") == 2);
  CHECK(run.count(second) == 2);
  CHECK_FALSE(run.said("call 1: "));
}

TEST_CASE("runs: those of threads and of one worker may follow each other, and processes too") {
  const std::vector<std::vector<std::string>> well = {
      {"inproc:2", "inproc:3", "inproc:1"},
      {"tcp:1", "tcp:1", "inproc:2", "tcp:0"},
      {"inproc:2", "tcp:2", "inproc:2"},  // in each of the processes
      {"beside", "inproc:2", "inproc:2", "tcp:1", "tcp:1"}};
  for (std::vector<std::string> command : well) {
    command.insert(command.begin(), program);
    child run(command);
    CHECK(run.wait() == 0);
    INFO(run.output());
    CHECK_FALSE(run.said("weft: "));
  }
  child one({program, "tcp:2", "tcp:2"}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});  // meets nobody
  CHECK(one.wait() == 0);
}

TEST_CASE("runs: more workers than a host may have are refused at once, however many" *
          doctest::test_suite("all")) {
  static_assert(weft::max_workers_per_host == 1024);  // as README.md says
  for (const std::string kind : {"tcp:", "inproc:"}) {
    // The third: twice as many and eight are eight, in 32 bits.
    for (const std::string workers : {"1025", "1000000", "2147483648", "4294967295"}) {
      // Should they not be refused, descriptors lack before this machine is exhausted.
      child run({"bash", "-c", "ulimit -n 1024; exec " + program + " " + kind + workers});
      CHECK(run.wait() == 1);
      INFO(run.output());
      CHECK(run.said(workers + " workers are more than one host may have: at most 1024\n"));
      CHECK(run.said("invalid argument"));
      CHECK_FALSE(run.said("rank"));
    }
  }
  weft::launch_options o;
  o.workers = weft::max_workers_per_host + 1;
  try {
    static_cast<void>(weft::launch_local(o));
    FAIL("they were started");
  } catch (const weft::rpc_error& e) {
    CHECK(e.error() == weft::errc::invalid_argument);
  }
}

TEST_CASE("runs: limits and deadlines that nothing could meet are refused at once") {
  const std::vector<std::pair<const char*, std::string>> limits = {
      {":no_window", "window_bytes is 0"},
      {":no_frames", "outbox_frames is 0"},
      {":no_bytes", "outbox_bytes is 0"},
      {":no_payload", "bounds.payload is 0"},
      {":small_payload", "bounds.payload is 262143"},
      {":small_greeting", "bounds.handshake is 63"},
      {":no_link_memory", "bounds.link_tensor_bytes is 0"},
      {":no_memory", "bounds.worker_tensor_bytes is 0"},
      {":no_stall_limit", "stall_limit leaves no time"},
      {":no_pool_idle", "buffer_cache_idle leaves no time"},
      {":no_call", "call_deadline leaves no time"},
      {":no_rendezvous", "rendezvous_deadline leaves no time"},
      {":no_handshake", "handshake_deadline leaves no time"},
      {":io_threads", "io_threads is 65537: give at most 65536"},
      {":compute_threads", "compute_threads is 4294967295: give at"},
      {":intra_op_threads", "intra_op_threads is 2147483648: give"}};
  for (const std::string kind : {"tcp:2", "inproc:2", "tcp:1"}) {
    std::vector<std::string> command = {program};
    for (const auto& [how, why] : limits) command.push_back(kind + how);
    child run(command);
    CHECK(run.wait() == 1);
    INFO(run.output());
    for (std::size_t n = 0; n < limits.size(); ++n) {
      CHECK(run.count("weft: run: invalid argument: options." + limits[n].second) == 1);
      CHECK(run.said("call " + std::to_string(n) + " returned 1\n"));
    }
    CHECK_FALSE(run.said("rank"));
  }
}

TEST_CASE("runs: an exception without a text is an error in words, wherever it is thrown" *
          doctest::test_suite("all")) {
  const std::string words = "an exception that says nothing";
  for (const std::string kind : {"unix:2", "inproc:2"}) {
    for (const std::string where : {":wordless_function", ":wordless_codec"}) {
      child run({program, kind + where});
      CHECK(run.wait() == 0);
      INFO(run.output());
      CHECK(run.said("it: call of 'runs::"));
      CHECK(run.said(words));
    }
    for (const std::string where : {":wordless_main", ":empty_main", ":wordless_handler"}) {
      child run({program, kind + where});
      CHECK(run.wait() == 1);
      INFO(run.output());
      CHECK(run.said("weft: worker1: worker 'worker1': worker failed: "));
      CHECK(run.said(words));
    }
  }
}

TEST_CASE("runs: a place that cannot be is refused at once") {
  child run({program, "tcp:2:no_place"});
  CHECK(run.wait() == 1);
  INFO(run.output());
  CHECK(run.said("weft: run: invalid argument: options.place says rank 2 of 2"));
  CHECK_FALSE(run.said("call 0: "));
}

TEST_CASE("runs: workers whose options say their places meet on this host") {
  child run({"bash", "-c",
             "export WEFT_RUN_ID=$$; PLACE=1 " + program + " tcp:2:placed & PLACE=0 " + program +
                 " tcp:2:placed; first=$?; wait $!; exit $((10 * first + $?))"});
  CHECK(run.wait() == 0);
  INFO(run.output());
  for (const char* rank : {"0", "1"}) {
    CHECK(run.count("call 0: rank " + std::string(rank) + " of 2\n") == 1);
  }
}

TEST_CASE("runs: the smallest payload holds what weft says itself") {
  for (const std::string kind : {"inproc:2", "tcp:2"}) {
    child run({program, kind + ":least_payload"});
    CHECK(run.wait() == 1);
    INFO(run.output());
    CHECK(run.said("a call: remote exception"));
    CHECK(run.said("zzzz"));
  }
}

TEST_CASE("runs: a window holds also between workers that are threads") {
  for (const std::string kind : {"inproc:2", "tcp:2"}) {
    child run({program, kind + ":little_window"});
    CHECK(run.wait() == 0);
    INFO(run.output());
    CHECK(run.said("too many calls"));
    CHECK_FALSE(run.said("started 100\n"));
    for (const std::string prefix : {"started ", "done "}) {
      const std::int64_t count = run.number_after(prefix);
      CHECK(count >= 4);  // empty requests count 1 KiB each
      CHECK(count < 50);
    }
  }
}

TEST_CASE("runs: descriptors that lack are named also for workers that are threads") {
  child few({"bash", "-c", "ulimit -n 64; exec " + program + " inproc:20"});
  CHECK(few.wait() == 1);
  INFO(few.output());
  CHECK(few.said("weft: run: resource exhausted"));
  CHECK(few.said("this process with 20 workers needs about"));
  CHECK(few.said("RLIMIT_NOFILE (ulimit -n) allows 64"));
  child raised({"bash", "-c", "ulimit -S -n 64; exec " + program + " inproc:20"});
  CHECK(raised.wait() == 0);
}

}  // namespace runs_of_a_program
