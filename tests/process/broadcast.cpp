// SPDX-License-Identifier: BSL-1.0
// Broadcasts among real processes, one of which is killed.
#include <doctest/doctest.h>

#include <process/child.hpp>
#include <string>

namespace process_broadcasts {

using weft::testing::child;

TEST_CASE("process broadcast: a worker that is killed costs its own result only") {
  // Of 0…7, the caller sends to 4, 2, 1 and itself; 4 sends to 6 and 5, 6 to 7, 2 to 3. Killed
  // between, 6 has it already from 4, and gets it again from 5.
  for (const std::string when : {"before", "between", "behind"}) {
    for (const int victim : {4, 6}) {
      if (when != "before" && victim != 4) continue;
      CAPTURE(when);
      CAPTURE(victim);
      child run({WEFT_TEST_PROGRAMS "/spread", when, std::to_string(victim)});
      CHECK(run.wait() == 0);
      INFO(run.output());
      for (int rank = 0; rank < 8; ++rank) {
        const std::string line =
            std::to_string(rank) + (rank == victim ? ": died\n" : ": 2097152.000000, ran 1\n");
        CHECK(run.count("[worker0] " + line) == 1);
      }
    }
  }
}

}  // namespace process_broadcasts
