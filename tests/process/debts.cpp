// SPDX-License-Identifier: BSL-1.0
// Real processes that owe each other more than either may keep, while one of them is stopped.
#include <weft/core/detail/thread_sanitizer.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <process/child.hpp>
#include <process/resident.hpp>
#include <stdexcept>
#include <string>
#include <thread>

namespace debts_of_processes {

using namespace std::chrono_literals;
using weft::testing::child;
using weft::testing::eventually;

const std::string program = WEFT_TEST_PROGRAMS "/debts";

constexpr std::int64_t window = std::int64_t{256} << 20;
constexpr std::int64_t reply = 40'000'000;
/// Rank 0 makes so many at least while rank 1 takes none: the first that is over the mark is the
/// last.
constexpr int over_the_mark = window / reply + 1;

pid_t pid_of(const child& run, int rank) {
  return static_cast<pid_t>(run.number_after("pid ", "rank " + std::to_string(rank) + " holds"));
}
/// A line of its /proc/<pid>/status, in bytes or as a letter.
std::string status_of(pid_t pid, const std::string& what) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; in >> word;) {  // bounded: by the file
    if (word == what) return (in >> word, word);
  }
  throw std::runtime_error("no " + what + " of process " + std::to_string(pid));
}
std::int64_t bytes_of(pid_t pid, const std::string& what) {
  return 1024 * std::stoll(status_of(pid, what));
}

#if defined(WEFT_THREAD_SANITIZER)
/// What it holds now: the peak is known only with what ThreadSanitizer writes down.
std::int64_t most_of(pid_t pid) { return 1024 * weft::testing::resident_kib(pid); }
#else
std::int64_t most_of(pid_t pid) { return bytes_of(pid, "VmHWM:"); }
#endif

/// Runs until rank 1 has stopped, and rank 0 has made what it may.
void run_into_the_stop(child& run) {
  for (const char* rank : {"rank 0 holds", "rank 1 holds"}) run.read_until(rank);
  run.read_until("rank 1 stops\n");
  REQUIRE(eventually([&] { return status_of(pid_of(run, 1), "State:") == "T"; }));
  run.read_until("rank 0 made one\n", over_the_mark);
}

void check_memory(const std::string& transport, const std::string& style) {
  CAPTURE(transport);
  CAPTURE(style);
  child run({program, transport, style, "one"});
  run_into_the_stop(run);
  // What it would do wrong it would do now; that it does nothing cannot be waited for.
  std::this_thread::sleep_for(1s);
  const std::int64_t idle = 1024 * run.number_after("rank 0 holds ");
  const std::int64_t most = most_of(pid_of(run, 0));
  MESSAGE(transport, ", ", style, ": ", (most - idle) >> 20, " MiB above idle");
  CHECK(most - idle <= window + 2 * reply);
  ::kill(pid_of(run, 1), SIGCONT);
  CHECK(run.wait() == 0);
  INFO(run.output());
  CHECK(run.said("rank 1 has all"));
  CHECK(run.count("rank 0 made one") == 100);
}

TEST_CASE("debts: what a worker holds for a caller that is stopped is the window and two replies" *
          doctest::test_suite("all")) {
  check_memory("tcp", "plain");
  check_memory("tcp", "coroutine");
  check_memory("unix", "plain");
  check_memory("unix", "coroutine");
}

TEST_CASE("debts: both owe each other 100 replies of 40 MB while one is stopped, and all come" *
          doctest::test_suite("all")) {
  for (const std::string transport : {"tcp", "unix"}) {
    CAPTURE(transport);
    child run({program, transport, "plain", "both"});
    run_into_the_stop(run);
    ::kill(pid_of(run, 1), SIGCONT);
    CHECK(run.wait() == 0);
    INFO(run.output());
    CHECK(run.said("rank 0 has all"));
    CHECK(run.said("rank 1 has all"));
    CHECK(run.count("made one") == 200);
  }
}

}  // namespace debts_of_processes
