// SPDX-License-Identifier: BSL-1.0
// A process that is killed while the bytes of a large tensor travel to it, or from it.
#include <doctest/doctest.h>

#include <algorithm>
#include <process/child.hpp>
#include <string>

namespace large_losses {

using weft::testing::child;
using weft::testing::is_gone;

TEST_CASE("large: who is killed amid a large tensor is lost, and the others go on") {
  for (const std::string deed : {"argument", "caller", "items"}) {
    for (const std::string transport : {"tcp", "unix"}) {
      CAPTURE(deed);
      CAPTURE(transport);
      child run({WEFT_TEST_PROGRAMS "/large", deed, transport, transport == "tcp" ? "0" : "1"});
      const int status = run.wait();
      INFO(run.output());
      CHECK(status == 0);
      CHECK(run.count("it is lost\n") == 1);
      CHECK(run.count("the others went on\n") == 1);
      CHECK(run.count("weft: worker 'worker2' (rank 2) was killed by signal 9 (Killed); the run "
                      "goes on without it\n") == 1);
      const auto pids = run.pids();
      CHECK(std::all_of(pids.begin(), pids.end(), is_gone));
    }
  }
}

}  // namespace large_losses
