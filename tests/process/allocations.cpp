// SPDX-License-Identifier: BSL-1.0
// How often a call allocates in steady state.
#include <doctest/doctest.h>

#include <process/child.hpp>
#include <string>

namespace process_allocations {

using weft::testing::child;

// A sanitizer's own operator new comes first.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_TEST_OTHERS_COUNT
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_TEST_OTHERS_COUNT
#endif

#ifndef WEFT_TEST_OTHERS_COUNT
// Of 1000 calls.
TEST_CASE("process allocations: a request takes its memory from one that has ended") {
  for (const char* io_threads : {"1", "2"}) {
    child run({WEFT_TEST_PROGRAMS "/allocations", io_threads});
    const int status = run.wait();
    INFO(io_threads, " I/O threads: ", run.output());
    CHECK(status == 0);
    for (const std::string how : {"later", "here", "plain"}) {
      CHECK(run.number_after(how + " caller ") < 100);
      // The frame of the function's coroutine, or the post to the pool and its executor, are Asio's.
      const std::int64_t callee = run.number_after(" callee ", how);
      CHECK(callee < (how == "plain" ? 2500 : 1500));
    }
  }
}
#endif

}  // namespace process_allocations
