// SPDX-License-Identifier: BSL-1.0
// When rank 0, at the end of its run's time, looks again who has answered. Pure.
//
//   ends_by     + 1/4 grace   + 1/2 grace   + 3/4 grace   + 7/8 grace   + grace
//      look        look          look          look          verdict       the others leave, and
//      each gives up all who are silent, and asks the rest                 blame rank 0
//
// Workers that may go can fall silent one after the other, each in the round that the loss of the
// one before it began. However many they are, the others hear from rank 0 in time; whoever stands
// in the way of the verdict is named by it.
#pragma once

#include <weft/core/time.hpp>

#include <algorithm>
#include <optional>

namespace weft::engine {

class verdict_schedule {
 public:
  /// After `ends_by` the others wait for rank 0 as long as `grace`.
  verdict_schedule(time_point ends_by, duration grace)
      : apart_(grace / 4), verdict_(later(ends_by, grace - grace / 8)) {}
  /// When to look again after one at `now`; nothing: it is time for the verdict.
  [[nodiscard]] std::optional<time_point> next(time_point now) const {
    if (now >= verdict_) return std::nullopt;
    return std::min(later(now, apart_), verdict_);
  }
  /// At the verdict: until when who was asked at `asked` has still time to answer, an eighth of
  /// what others had; nothing: it has had that, or there is no more.
  [[nodiscard]] std::optional<time_point> more(time_point asked, time_point now) const {
    const time_point until = std::min(later(asked, apart_ / 8), later(verdict_, apart_ / 4));
    if (now >= until) return std::nullopt;
    return until;
  }
  /// How long whoever is asked has to answer at most; also how late a look may be before who
  /// answered meanwhile is heard first.
  [[nodiscard]] duration apart() const noexcept { return apart_; }

 private:
  duration apart_;
  time_point verdict_;
};

}  // namespace weft::engine
