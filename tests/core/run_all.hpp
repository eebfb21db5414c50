// SPDX-License-Identifier: BSL-1.0
// What `./dev test` leaves to `./dev test --all`: test cases of the suite "all", and the rest of
// what a case goes through many times.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace weft::testing {

/// Whether everything runs: `./dev test --all` and `./dev test NAME` set WEFT_TEST_ALL.
[[nodiscard]] inline bool run_all() {
  static const bool all = std::getenv("WEFT_TEST_ALL") != nullptr;
  return all;
}

/// How often: `some` times, or `all` where everything runs.
[[nodiscard]] inline std::uint64_t rounds(std::uint64_t some, std::uint64_t all) {
  return run_all() ? all : some;
}

}  // namespace weft::testing
