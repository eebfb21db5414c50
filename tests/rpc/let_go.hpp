// SPDX-License-Identifier: BSL-1.0
// A function that keeps its caller's window, and a thread of its pool, until the test lets it go.
#pragma once

#include <atomic>
#include <core/bounded_wait.hpp>
#include <thread>

namespace weft::testing {

inline std::atomic<bool> let_go{false};
inline void wait_to_be_let_go() {
  for (bounded_wait until("the test lets the function go"); until.not_yet(let_go);) {
    std::this_thread::yield();
  }
}

}  // namespace weft::testing
