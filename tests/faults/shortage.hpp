// SPDX-License-Identifier: BSL-1.0
// Allocations that fail on one thread, from a chosen one on.
#pragma once

namespace weft::testing {

/// While it lives, on its thread: the n-th allocation fails, and `further` ones right behind it.
/// Counts from 1; covers operator new, and malloc as weft itself calls it.
class shortage {
 public:
  shortage(long nth, long further);
  shortage(const shortage&) = delete;
  shortage& operator=(const shortage&) = delete;
  ~shortage();
  /// Whether one failed.
  [[nodiscard]] static bool struck() noexcept;
  /// Lasts beyond this object's place: until it has struck, or `disarm`.
  static void arm(long nth, long further) noexcept;
  static void disarm() noexcept;
};

}  // namespace weft::testing
