// SPDX-License-Identifier: BSL-1.0
// Which numbers of a sequence have come, when most come in order.
#pragma once

#include <concepts>
#include <set>

namespace weft::detail {

/// "All before `next()`, and these beyond". The caller bounds how far beyond.
template <std::unsigned_integral N>
class sequence_set {
 public:
  /// The sequence counts from `first`; what is before it counts as seen.
  explicit sequence_set(N first = 0) noexcept : next_(first) {}

  [[nodiscard]] bool contains(N number) const { return number < next_ || beyond_.contains(number); }
  void insert(N number) {
    if (number < next_) return;
    beyond_.insert(number);
    while (beyond_.erase(next_) != 0) ++next_;
  }
  /// The first that has not come.
  [[nodiscard]] N next() const noexcept { return next_; }

 private:
  N next_;
  std::set<N> beyond_;
};

}  // namespace weft::detail
