// SPDX-License-Identifier: BSL-1.0
// The one source of all choices of a simulated world: drawn from a seed, or read from a record.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft::sim {

/// Pseudorandom bits that are the same with every compiler and on every machine: splitmix64
/// (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class splitmix {
 public:
  explicit constexpr splitmix(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t operator()() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// All choices of a world, in order.
using record = std::vector<std::uint32_t>;

/// Makes choices. Each choice is a small number. 0 is always the plain choice: nothing goes wrong,
/// the first in line is next. So a record of zeros is a calm world. Behind a record's end all
/// choices are 0, so that a failing record can shrink. One thread.
///
///   if (c.pick(100) == 99) drop(frame);  // once in a hundred, never in a calm world
class choices {
 public:
  /// Draws choices from that seed, and records them.
  explicit choices(std::uint64_t seed) : random_(seed) {}
  /// Reads choices from that record; `made()` gives the choices that were really made.
  explicit choices(record given) : random_(0), reads_(true), given_(std::move(given)) {}

  /// A number from 0 to among - 1. Requires among > 0.
  [[nodiscard]] std::uint32_t pick(std::uint32_t among) {
    std::uint32_t one = 0;
    if (!reads_) {
      one = static_cast<std::uint32_t>((random_() >> 32) * among >> 32);
    } else if (made_.size() < given_.size()) {
      one = std::min(given_[made_.size()], among - 1);
    }
    made_.push_back(one);
    return one;
  }
  /// True in `percent` of 100 cases.
  [[nodiscard]] bool chance(std::uint32_t percent) {
    return percent > 0 && pick(100) >= 100 - std::min(percent, 100u);
  }
  [[nodiscard]] const record& made() const noexcept { return made_; }

 private:
  splitmix random_;
  bool reads_ = false;
  record given_;
  record made_;
};

}  // namespace weft::sim
