// SPDX-License-Identifier: BSL-1.0
// How the run of real processes, and of workers as threads of one, ends when somebody does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <core/run_all.hpp>
#include <process/child.hpp>
#include <string>
#include <vector>

namespace process_endings {

using weft::testing::child;
using weft::testing::is_gone;

const std::string program = WEFT_TEST_PROGRAMS "/ending";

std::vector<std::string> ending(const std::string& deed, const std::string& how,
                                const std::string& io_threads) {
  return {program, deed, how, io_threads};
}

struct way {
  const char* how;
  const char* io_threads;
};
const std::vector<way> two_ways = {{"processes", "1"}, {"inproc", "1"}};
/// Two, unless everything runs.
const std::vector<way> all_ways = weft::testing::run_all() ? std::vector<way>{{"processes", "0"},
                                                                              {"processes", "1"},
                                                                              {"inproc", "0"},
                                                                              {"inproc", "1"},
                                                                              {"inproc", "2"}}
                                                           : two_ways;

template <class Check>
void in_ways(const std::vector<way>& ways, const std::string& deed, Check&& check) {
  for (const auto& [how, io_threads] : ways) {
    child run(ending(deed, how, io_threads));
    const int status = run.wait();
    INFO(how, ", ", io_threads, " I/O threads: ", run.output());
    check(run, status);
    const auto pids = run.pids();
    CHECK(std::all_of(pids.begin(), pids.end(), is_gone));
  }
}

TEST_CASE("process ending: what was posted is done before the processes end") {
  in_ways(all_ways, "work", [](const child& run, int status) {
    CHECK(status == 0);
    CHECK(run.count("all notes are done") == 1);
    CHECK(run.count("the chain has ended") == 1);
    CHECK(run.count("a post that throws") == 1);
  });
}

TEST_CASE("process ending: what the deadline cuts is counted and said, and the run has failed") {
  in_ways(two_ways, "cut", [](const child& run, int status) {
    CHECK(status == 1);
    for (const char* who : {"weft: worker0:", "weft: worker1:", "weft: worker2:"}) {
      const std::string line = run.line_from(who);
      CHECK(line.find("1 request of worker 'worker0' not done by the shutdown deadline of 2.0 s") !=
            std::string::npos);
    }
  });
}

TEST_CASE("process ending: a plain function that does not return is named, and the run ends" *
          doctest::test_suite("all")) {
  in_ways(all_ways, "stuck", [](const child& run, int status) {
    CHECK(status == 1);
    CHECK(run.line_from("weft: worker1:")
              .find("stuck' called by worker 'worker0' still runs on worker1's pool after ") !=
          std::string::npos);
    CHECK(run.line_from("weft: worker0:").find("'worker1'") != std::string::npos);
    CHECK(run.said("not flushed"));
  });
  in_ways(two_ways, "stuck-here", [](const child& run, int status) {
    CHECK(status == 1);
    CHECK(run.line_from("weft: worker0:")
              .find("stuck' called by worker 'worker0' still runs on worker0's pool after ") !=
          std::string::npos);
  });
}

TEST_CASE("process ending: a worker whose own thread does not return is named by the others" *
          doctest::test_suite("all")) {
  child run(ending("spin", "inproc", "1"));
  const int status = run.wait();
  INFO(run.output());
  CHECK(status == 1);
  for (const char* who : {"weft: worker0:", "weft: worker1:"}) {
    const std::string line = run.line_from(who);
    CHECK(line.find("'worker2'") != std::string::npos);
    CHECK(line.find("did not answer by the shutdown deadline of 2.0 s") != std::string::npos);
  }
  CHECK(run.line_from("weft: worker2:").find("left behind") != std::string::npos);
  CHECK(run.said("run returned 1"));
}

TEST_CASE("process ending: a worker stopped after its main does not keep the others") {
  child run(ending("stop", "processes", "1"));
  run.read_until("weft: worker0:");
  run.read_until("weft: worker1:");
  for (const char* who : {"weft: worker0:", "weft: worker1:"}) {
    const std::string line = run.line_from(who);
    INFO(line);
    CHECK(line.find("'worker2'") != std::string::npos);
  }
}

TEST_CASE("process ending: whoever leaves early is the one that the others name") {
  child run(ending("leave", "processes", "1"));
  CHECK(run.wait() == 1);
  INFO(run.output());
  for (const char* who : {"weft: worker0:", "weft: worker2:"}) {
    const std::string line = run.line_from(who);
    CHECK(line.find("worker 'worker1': peer died: ") != std::string::npos);
    CHECK(line.find("worker 'worker1'") == line.rfind("worker 'worker1'"));  // said once
  }
}

TEST_CASE("process ending: a handler that throws ends the run with its words, everywhere") {
  in_ways(all_ways, "handler", [](const child& run, int status) {
    CHECK(status == 1);
    for (const char* who : {"weft: worker0:", "weft: worker1:", "weft: worker2:"}) {
      CHECK(run.line_from(who).find("the handler is torn") != std::string::npos);
    }
    CHECK(run.line_from("weft: worker0:").find("'worker1'") != std::string::npos);
  });
}

}  // namespace process_endings
