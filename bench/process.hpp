// SPDX-License-Identifier: BSL-1.0
// Processes of a measurement: where they run, how long they may take, and that none outlives us.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace bench {

/// Where the two ends of a measurement run. On a small virtual machine an idle core takes tens of
/// microseconds to wake, so a ping-pong on one core and one on two measure different things.
enum class placement {
  one_core,   ///< both ends on the same core
  core_each,  ///< caller and callee each on a core of its own
  two_cores,  ///< both ends may use both of two cores
};

enum class side { caller, callee };

/// Cores that this process may use, as they were when first asked: ask before the first pin().
const std::vector<int>& cores();

/// Restricts the calling thread, and all that it starts from now on. With a single core in
/// cores(), every placement means that core.
void pin(placement where, side which);

/// A forked process that runs `body`, is killed with its parent or by the destructor, and never
/// returns from the constructor. The caller has one thread only.
class child {
 public:
  child(placement where, side which, const std::function<void()>& body);
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child();

 private:
  pid_t pid_;
};

/// What one measurement yields: named numbers ("p50": microseconds, "rate": per second, ...).
using figures = std::map<std::string, double>;

/// Figures, or why there are none.
struct outcome {
  figures values;
  std::string error;
};

/// Runs `measure` in a process of its own, pinned as the caller. An exception, a signal and a
/// passed time limit become an error; processes that it left behind are killed.
outcome run_apart(placement where, std::chrono::seconds limit,
                  const std::function<figures()>& measure);

}  // namespace bench
