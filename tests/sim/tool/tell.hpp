// SPDX-License-Identifier: BSL-1.0
// What is said of a seed that breaks something: the seed, what was broken, and the story of the
// smallest record that still breaks it.
#pragma once

#include <weft/sim/shrink.hpp>

#include <chrono>
#include <ostream>
#include <sim/play.hpp>
#include <string>

namespace weft::testing {

inline void tell(std::ostream& out, to_play p, const played& first) {
  out << "seed " << p.seed << " (--profile " << name_of(p.how) << " --program " << name_of(p.what)
      << " --workers " << p.workers << ") breaks:\n";
  for (const std::string& b : first.broken) out << "  " << b << '\n';
  // Of a world in which much happens until its time is over, as little as is found in a minute.
  const auto by = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const sim::record small = sim::shrink(first.record, [&p, by](const sim::record& r) {
    if (std::chrono::steady_clock::now() > by) return false;
    p.record = &r;
    return !play(p).broken.empty();
  });
  p.record = &small;
  p.story = true;
  const played story = play(p);
  out << "its smallest record has " << sim::faulty_choices(small) << " choices of "
      << first.record.size() << ", and breaks:\n";
  for (const std::string& b : story.broken) out << "  " << b << '\n';
  out << story.story << std::flush;
}

}  // namespace weft::testing
