// SPDX-License-Identifier: BSL-1.0
// Taking times inside a measurement, alike for weft and its peers.
#pragma once

#include "process.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <stdexcept>
#include <vector>

namespace bench {

/// Paces a loop by time: a warm-up of a fifth of the budget, then samples for the rest of it, at
/// least `least` of them however long they take.
///
///   pace p(std::chrono::milliseconds(500));
///   while (p.more()) { p.begin(); ...; p.end(); }
///   return p.latency();
class pace {
 public:
  using clock = std::chrono::steady_clock;

  explicit pace(std::chrono::milliseconds budget, std::size_t least = 5)
      : budget_(budget), least_(least) {
    samples_.reserve(1U << 18U);
  }

  bool more() {
    if (began_ == clock::time_point{}) began_ = last_ = clock::now();
    return samples_.size() < least_ || last_ - began_ < budget_;
  }
  void begin() { start_ = clock::now(); }
  void end() {
    last_ = clock::now();
    if (last_ - began_ < budget_ / 5 && samples_.empty()) return;
    samples_.push_back(std::chrono::duration<double, std::micro>(last_ - start_).count());
  }

  /// p50 and p99 in microseconds.
  figures latency() const { return {{"p50", at(0.50)}, {"p99", at(0.99)}}; }

 private:
  double at(double fraction) const {
    if (samples_.empty()) throw std::runtime_error("no samples");
    auto sorted = samples_;
    const auto last = static_cast<double>(sorted.size() - 1);
    const auto index = static_cast<std::ptrdiff_t>(std::lround(fraction * last));
    std::nth_element(sorted.begin(), sorted.begin() + index, sorted.end());
    return sorted[static_cast<std::size_t>(index)];
  }

  clock::duration budget_;
  std::size_t least_;
  clock::time_point began_{};
  clock::time_point start_{};
  clock::time_point last_{};
  std::vector<double> samples_;
};

/// Processor time that all threads of this process have used, in microseconds.
inline double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

/// Counts calls between start() and now, for a rate and the processor time of one call.
class throughput {
 public:
  void start() {
    calls_ = 0;
    began_ = pace::clock::now();
    cpu_began_ = cpu_us();
  }
  void count() { ++calls_; }
  /// "rate" in calls per second, "cpu" in microseconds of this process per call.
  figures result() const {
    const double cpu = cpu_us() - cpu_began_;
    const std::chrono::duration<double> took = pace::clock::now() - began_;
    if (calls_ == 0) throw std::runtime_error("no call ended");
    const auto calls = static_cast<double>(calls_);
    return {{"rate", calls / took.count()}, {"cpu", cpu / calls}};
  }

 private:
  std::size_t calls_ = 0;
  pace::clock::time_point began_{};
  double cpu_began_ = 0;
};

}  // namespace bench
