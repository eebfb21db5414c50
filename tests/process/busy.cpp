// SPDX-License-Identifier: BSL-1.0
// A worker that computes for 20 s is not dead: whoever calls it waits until it is done.
#include <doctest/doctest.h>

#include <memory>
#include <process/child.hpp>
#include <string>
#include <vector>

namespace busy_workers {

using weft::testing::child;

const std::string program = WEFT_TEST_PROGRAMS "/busy";

TEST_CASE("process busy: a worker that computes for 20 s is reached when it is done" *
          doctest::test_suite("all")) {
  const std::vector<std::vector<std::string>> runs = {
      {program, "tcp", "0", "start", "0"},    {program, "unix", "1", "start", "0"},
      {program, "unix", "0", "start", "1"},   {program, "tcp", "1", "handler", "0"},
      {program, "unix", "0", "handler", "0"}, {program, "tcp", "0", "handler", "1"}};
  std::vector<std::unique_ptr<child>> all;  // at once: they sleep
  for (const auto& command : runs) all.push_back(std::make_unique<child>(command));
  for (std::size_t i = 0; i < all.size(); ++i) {
    child& run = *all[i];
    const int status = run.wait();
    INFO(runs[i][1], ", rank ", runs[i][2], ", ", runs[i][3], ", ", runs[i][4],
         " I/O threads: ", run.output());
    CHECK(status == 0);
    CHECK(run.count("has computed") == 1);
    for (const char* rank : {"0", "1", "2"}) {
      CHECK(run.said("rank " + std::string(rank) + " got 6\n"));
    }
  }
}

}  // namespace busy_workers
