// SPDX-License-Identifier: BSL-1.0
// `run` called more than once by a program, and with more workers than a host may have.
#include <weft/rpc/launch.hpp>
#include <weft/rpc/options.hpp>

#include <doctest/doctest.h>

#include <process/child.hpp>
#include <string>
#include <vector>

namespace runs_of_a_program {

using weft::testing::child;

const std::string program = WEFT_TEST_PROGRAMS "/runs";

TEST_CASE("runs: more workers than a host may have are refused at once, however many") {
  static_assert(weft::max_workers_per_host == 1024);  // as the README says
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
