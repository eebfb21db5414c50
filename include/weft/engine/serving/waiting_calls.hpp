// SPDX-License-Identifier: BSL-1.0
// Calls that arrived and wait for what they run on, of one link. A pure table: it knows no clock,
// thread or message; its owner serialises the steps.
//
//   add ─► waits ─┬─ take          what it waited for is there: it runs
//                 ├─ take_call     its caller gave up
//                 ├─ take_expired  its deadline passed
//                 └─ close         the link is gone; nothing waits from then on
//
// Whoever gets a call from one of the four has it alone: it ends in exactly one way.
#pragma once

#include <weft/engine/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace weft::engine {

/// `Call` is a movable handle, empty by default; `Time` is ordered. Not thread-safe.
template <class Call, class Time>
class waiting_calls {
 public:
  using time_point = Time;
  using number = std::uint64_t;  ///< from 1, never used twice

  /// At most `most` wait at once.
  explicit waiting_calls(std::size_t most) noexcept : most_(most) {}

  [[nodiscard]] bool closed() const noexcept { return closed_; }
  [[nodiscard]] bool full() const noexcept { return calls_.size() >= most_; }
  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }

  /// `id` is the caller's, by which it gives up; 0: it never does. Of two with one id, which no
  /// correct peer sends, the first is meant. Requires neither closed() nor full().
  number add(std::uint64_t id, std::optional<time_point> deadline, Call call) {
    const number mine = ++last_;
    calls_.emplace(mine, entry{id, deadline, std::move(call)});
    if (id != 0) ids_.emplace(id, mine);
    if (deadline) deadlines_.emplace(*deadline, mine);
    return mine;
  }
  [[nodiscard]] bool waits(number mine) const { return calls_.contains(mine); }

  /// Each of these leaves nothing of what it returns behind; empty if there is no such call.
  [[nodiscard]] Call take(number mine) {
    const auto at = calls_.find(mine);
    return at == calls_.end() ? Call() : remove(at);
  }
  [[nodiscard]] Call take_call(std::uint64_t id) {
    const auto at = ids_.find(id);
    return at == ids_.end() ? Call() : take(at->second);
  }
  /// Those whose deadline is not after `now`, in its order. All stay if it throws.
  [[nodiscard]] std::vector<Call> take_expired(time_point now) {
    std::vector<Call> out;
    const auto end = deadlines_.upper_bound({now, std::numeric_limits<number>::max()});
    out.reserve(static_cast<std::size_t>(std::distance(deadlines_.begin(), end)));
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      out.push_back(take(deadlines_.begin()->second));
    }
    return out;
  }
  /// All, in the order of their arrival; they stay if it throws.
  [[nodiscard]] std::vector<Call> close() {
    closed_ = true;
    std::vector<Call> out;
    out.reserve(calls_.size());
    while (!calls_.empty()) out.push_back(remove(calls_.begin()));
    return out;
  }

  /// The earliest deadline of those that wait.
  [[nodiscard]] std::optional<time_point> next_deadline() const {
    if (deadlines_.empty()) return std::nullopt;
    return deadlines_.begin()->first;
  }

 private:
  struct entry {
    std::uint64_t id = 0;
    std::optional<time_point> deadline;
    Call call;
  };
  using entries = std::map<number, entry>;

  Call remove(typename entries::iterator at) {
    const auto& [mine, e] = *at;
    if (const auto named = ids_.find(e.id); named != ids_.end() && named->second == mine) {
      ids_.erase(named);
    }
    if (e.deadline) deadlines_.erase({*e.deadline, mine});
    Call out = std::move(at->second.call);
    calls_.erase(at);
    return out;
  }

  const std::size_t most_;
  number last_ = 0;
  bool closed_ = false;
  entries calls_;
  std::map<std::uint64_t, number> ids_;
  std::set<std::pair<time_point, number>> deadlines_;
};

}  // namespace weft::engine
