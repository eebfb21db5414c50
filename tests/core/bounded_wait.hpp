// SPDX-License-Identifier: BSL-1.0
// The bound of every wait of a test for something that another thread or process does.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace weft::testing {

/// Longer than anything takes on a loaded machine, shorter than the watchdog's patience.
inline constexpr std::chrono::seconds wait_patience{40};

/// A wait that fails the test, by an exception with its name, instead of lasting for ever:
///
///   for (bounded_wait until("the callee was cancelled"); until.not_yet(cancelled == 1);) pause();
class bounded_wait {
 public:
  explicit bounded_wait(std::string what)
      : what_(std::move(what)), end_(std::chrono::steady_clock::now() + wait_patience) {}

  /// True while `there` is false and there is time left.
  [[nodiscard]] bool not_yet(bool there) const {
    if (there) return false;
    if (std::chrono::steady_clock::now() < end_) return true;
    throw std::runtime_error("the test waited in vain until " + what_);
  }

 private:
  std::string what_;
  std::chrono::steady_clock::time_point end_;
};

/// Holds this thread until another one has done something.
inline void until(const char* what, const std::function<bool()>& there) {
  for (bounded_wait patience(what); patience.not_yet(there());) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace weft::testing
