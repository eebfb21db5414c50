// SPDX-License-Identifier: BSL-1.0
// A worker that has no memory for one of weft's own small objects ends its process, and says why.
#include <doctest/doctest.h>

#include <core/run_all.hpp>
#include <cstdint>
#include <process/child.hpp>
#include <string>

namespace process_memory {

using weft::testing::child;

// A sanitizer's own operator new comes first.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_TEST_OTHERS_ALLOCATE
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_TEST_OTHERS_ALLOCATE
#endif

#ifndef WEFT_TEST_OTHERS_ALLOCATE
TEST_CASE("process memory: whichever of weft's allocations fails, one sentence, and all is over") {
  for (const std::string how : {"own", "joined"}) {
    // All of the first 400, in as many processes as end in time.
    const std::uint64_t step = weft::testing::rounds(17, 1);
    bool ended = false;
    for (int first = 1; first <= 400; first += 100) {
      const std::string last = std::to_string(first + 99);
      child run({WEFT_TEST_PROGRAMS "/out_of_memory", how, std::to_string(first),
                 std::to_string(step), last});
      const int status = run.wait();
      INFO(how, ", from ", first, ": ", run.output());
      CHECK(status == 0);
      CHECK(run.said("\nwell\n"));
      ended |= !run.said(": 0 times the process ended");
    }
    CHECK(ended);  // not each hundred need hit what no call can be told of: threads decide
  }
}
#endif

}  // namespace process_memory
