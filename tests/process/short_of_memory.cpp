// SPDX-License-Identifier: BSL-1.0
// A process that gets no memory for one message refuses that one, and goes on.
#include <weft/core/error.hpp>

#include <doctest/doctest.h>

#include <core/run_all.hpp>
#include <process/child.hpp>
#include <string>

namespace memory_limits {

using weft::testing::child;

// A sanitizer keeps its own records in the address space, and ends a process that cannot.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_TEST_NO_LIMIT_OF_ADDRESSES
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_TEST_NO_LIMIT_OF_ADDRESSES
#endif

#ifndef WEFT_TEST_NO_LIMIT_OF_ADDRESSES
std::string refused(weft::call_progress ran) {
  return "refused: " + std::to_string(static_cast<int>(weft::errc::resource_exhausted)) + " " +
         std::to_string(static_cast<int>(ran)) + " ";
}

TEST_CASE("process memory: a message for which the process gets no memory fails alone") {
  const std::string refusal = refused(weft::call_progress::not_executed);
  for (const char* over : {"tcp", "unix"}) {
    for (const char* io_threads : {"0", "1", "2"}) {
      if (!weft::testing::run_all() && over + std::string(io_threads) != "unix1") continue;
      child run({WEFT_TEST_PROGRAMS "/short_of_memory", over, io_threads});
      const int status = run.wait();
      INFO(over, ", ", io_threads, " I/O threads: ", run.output());
      CHECK(status == 0);
      CHECK(run.count(refusal + "call of 'short_of_memory::size_of' on worker 'worker1': ") == 3);
      CHECK(run.count("small: 1000\n") == 3);
      CHECK(run.said("large: 100000000\n"));
      // Encoding it, reading it, and what the function did, in that order.
      CHECK(run.said("at the caller\n[worker0] " + refused(weft::call_progress::not_sent)));
      CHECK(run.said("at the callee\n[worker0] " + refused(weft::call_progress::not_executed)));
      CHECK(run.said("as a result\n[worker0] " + refused(weft::call_progress::executed)));
      CHECK(run.said("string: 400000000\n"));
    }
  }
}
#endif

}  // namespace memory_limits
