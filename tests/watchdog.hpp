// SPDX-License-Identifier: BSL-1.0
// A test that hangs is ended, and says where. tests/main.cpp has every test program watched.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace weft::testing {

/// Longer than any bounded wait of a test, shorter than every limit outside of the program. For
/// this one's own tests WEFT_TEST_PATIENCE, in seconds, stands for it and for all parts'.
inline constexpr std::chrono::seconds watchdog_patience{60};

/// Something that a test is about, named if the test hangs while it lives. Its beginning and end
/// count as progress; while it lives, the watchdog has at least its patience. Any thread.
class test_part {
 public:
  explicit test_part(std::string what, std::chrono::seconds patience = watchdog_patience);
  test_part(const test_part&) = delete;
  test_part& operator=(const test_part&) = delete;
  ~test_part();

 private:
  std::uint64_t key_;
};

/// From now on, `test` is under way: without progress (a number that grows) for the patience, the
/// program says its name, its parts, where all threads are, what `more` adds (given what
/// `on_main_thread` returned there, in a signal handler), and aborts.
void watch(const char* test, std::function<std::uint64_t()> progress,
           const void* (*on_main_thread)(), std::function<std::string(const void*)> more);
/// No test is under way.
void unwatch();

}  // namespace weft::testing
