// SPDX-License-Identifier: BSL-1.0
// Into how many threads libtorch may split an operation, wherever a worker runs code.
#include <weft/engine/launch/usable_cores.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <process/child.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace thread_numbers {

using weft::testing::child;

const std::string program = WEFT_TEST_PROGRAMS "/threads";

/// Every place of both workers must see `wanted`.
void check_all_see(unsigned wanted, const child& run) {
  INFO(run.output());
  int places = 0;
  std::istringstream lines(run.output());
  for (std::string line; std::getline(lines, line);) {
    for (const char* place : {"main", "plain", "coroutine", "light", "backward"}) {
      const auto at = line.find(std::string(place) + " ");
      if (at == std::string::npos) continue;
      CAPTURE(line);
      const std::string numbers = std::to_string(wanted) + " " + std::to_string(wanted);
      CHECK(line.substr(at + std::string(place).size() + 1) == numbers);
      ++places;
    }
  }
  CHECK(places == 9);
}

TEST_CASE("threads: every thread of a worker splits operations by its share of the cores" *
          doctest::test_suite("all")) {
  const unsigned cores = weft::engine::usable_cores();
  // Both workers have cores / 2 pool threads, so each of these has one core.
  const unsigned share = std::max(1u, std::max(1u, cores / 2) / std::max(1u, cores / 2));
  for (const auto& kind : std::vector<std::string>{"processes", "threads"}) {
    for (const auto& io_threads : std::vector<std::string>{"0", "1", "2"}) {
      CAPTURE(kind);
      CAPTURE(io_threads);
      {
        child run({program, kind, io_threads, "0"}, {}, {"OMP_NUM_THREADS"});
        CHECK(run.wait() == 0);
        check_all_see(share, run);
      }
      {
        child run({program, kind, io_threads, "0"}, {{"OMP_NUM_THREADS", "3"}});
        CHECK(run.wait() == 0);
        check_all_see(3, run);
      }
    }
  }
}

TEST_CASE("threads: the program's choice comes before OMP_NUM_THREADS") {
  for (const auto& kind : std::vector<std::string>{"processes", "threads"}) {
    CAPTURE(kind);
    child run({program, kind, "1", "4"}, {{"OMP_NUM_THREADS", "3"}});
    CHECK(run.wait() == 0);
    check_all_see(4, run);
  }
}

#ifdef WEFT_MPIRUN
TEST_CASE("threads: mpirun, which says nothing of threads") {
  child run({WEFT_MPIRUN, "-n", "2", program, "processes", "1", "0"},
            {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
             {"OMPI_MCA_hwloc_base_binding_policy", "none"},
             {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
             {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}},
            {"OMP_NUM_THREADS"});
  CHECK(run.wait() == 0);
  check_all_see(1, run);
}
#endif

TEST_CASE("threads: what OMP_NUM_THREADS can say") {
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  const std::pair<const char*, unsigned> texts[] = {{"1", 1},  {"12", 12}, {"4,2", 4}, {"0", 0},
                                                    {"-1", 0}, {"x", 0},   {"", 0},    {"3x", 0}};
  for (const auto& [text, number] : texts) {
    CAPTURE(text);
    ::setenv("OMP_NUM_THREADS", text, 1);
    CHECK(weft::engine::openmp_threads_wanted().value_or(0) == number);
    if (number != 0) CHECK(weft::engine::intra_op_threads(0, 1, 1) == number);
    CHECK(weft::engine::intra_op_threads(7, 1, 1) == 7);
  }
  ::unsetenv("OMP_NUM_THREADS");
  const unsigned cores = weft::engine::usable_cores();
  CHECK(weft::engine::intra_op_threads(0, 1, 1) == cores);
  CHECK(weft::engine::intra_op_threads(0, 1, cores) == 1);
  CHECK(weft::engine::intra_op_threads(0, 100 * cores, 1) == 1);
  if (before) ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
}

}  // namespace thread_numbers
