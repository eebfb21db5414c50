// SPDX-License-Identifier: BSL-1.0
// Remembers which contexts of each creator were released, so that a late message never revives
// one. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace weft::autograd {

/// A context's number, which its creator counts from one. At a million contexts a second, numbers
/// last for half a year; at ten thousand, for fifty years.
using context_serial = std::uint64_t;
inline constexpr int serial_bits = 44;
inline constexpr context_serial last_serial = (context_serial{1} << serial_bits) - 1;

/// A context's id: its creator in the upper 20 bits, its serial number in the lower 44 bits.
[[nodiscard]] constexpr context_id make_context_id(worker_rank creator, context_serial serial) {
  return context_id{creator} << serial_bits | serial;
}
[[nodiscard]] constexpr worker_rank creator_of(context_id id) {
  return static_cast<worker_rank>(id >> serial_bits);
}
[[nodiscard]] constexpr context_serial serial_of(context_id id) { return id & last_serial; }

/// Intervals of serial numbers per creator. Creators count up, so a gap is a context that is open
/// or never came here. Beyond the limit the oldest gap counts as released. (Then the first call of
/// a context that is older than thousands of others is refused.) Not thread-safe.
class released_contexts {
 public:
  /// `limit` >= 1 bounds the intervals kept for one creator.
  explicit released_contexts(std::size_t limit = 4096) : limit_(limit) {}

  [[nodiscard]] bool contains(context_id id) const {
    const auto of = released_.find(creator_of(id));
    if (of == released_.end()) return false;
    const auto after = of->second.upper_bound(serial_of(id));
    return after != of->second.begin() && std::prev(after)->second >= serial_of(id);
  }

  void add(context_id id) {
    if (contains(id)) return;
    auto& intervals = released_[creator_of(id)];
    const context_serial n = serial_of(id);
    const auto after = intervals.upper_bound(n);
    const bool joins_after = after != intervals.end() && after->first - 1 == n;
    const context_serial last = joins_after ? after->second : n;
    if (joins_after) intervals.erase(after);
    const auto above = intervals.upper_bound(n);
    if (above != intervals.begin() && std::prev(above)->second + 1 == n) {
      std::prev(above)->second = last;
    } else {
      intervals.emplace(n, last);
    }
    if (intervals.size() > limit_) {
      const auto second = std::next(intervals.begin());
      intervals.begin()->second = second->second;
      intervals.erase(second);
    }
  }

  /// The number of intervals kept for one creator.
  [[nodiscard]] std::size_t intervals(worker_rank creator) const {
    const auto of = released_.find(creator);
    return of == released_.end() ? 0 : of->second.size();
  }

 private:
  std::size_t limit_;
  std::map<worker_rank, std::map<context_serial, context_serial>> released_;  // first -> last
};

}  // namespace weft::autograd
