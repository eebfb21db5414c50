// SPDX-License-Identifier: BSL-1.0
// Looks for the smallest record that still breaks something.
//
//   weft::sim::world w(seed, how);
//   if (breaks_in(w)) {
//     const auto small = weft::sim::shrink(w.decide().made(), [&](const weft::sim::record& r) {
//       weft::sim::world again(seed, how, r);
//       return breaks_in(again);
//     });
//   }
#pragma once

#include <weft/sim/choices.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>

namespace weft::sim {

/// A shorter and plainer record that still breaks something. First it removes the end, then it sets
/// ever smaller parts to zero. `breaks` says whether a record breaks something, and must say the
/// same each time. It is called at most `tries` times, and not for `big`. Its exceptions pass.
template <std::predicate<const record&> Breaks>
[[nodiscard]] record shrink(record big, Breaks breaks, std::size_t tries = 2000) {
  record small = std::move(big);
  const auto accepts = [&](record less) {
    --tries;
    if (!breaks(std::as_const(less))) return false;
    small = std::move(less);
    return true;
  };
  for (std::size_t part = std::max<std::size_t>(small.size() / 2, 1); part > 0 && tries > 0;
       part /= 2) {
    while (!small.empty() && small.size() >= part && tries > 0) {
      if (!accepts(record(small.begin(), small.end() - static_cast<std::ptrdiff_t>(part)))) break;
    }
    for (std::size_t at = 0; at < small.size() && tries > 0; at += part) {
      record plainer = small;
      const auto from = plainer.begin() + static_cast<std::ptrdiff_t>(at);
      std::fill_n(from, std::min(part, small.size() - at), 0u);
      if (plainer != small) accepts(std::move(plainer));
    }
  }
  return small;
}

/// The number of choices that are not the plain one.
[[nodiscard]] inline std::size_t faulty_choices(const record& r) {
  return static_cast<std::size_t>(std::count_if(r.begin(), r.end(), [](auto c) { return c != 0; }));
}

}  // namespace weft::sim
