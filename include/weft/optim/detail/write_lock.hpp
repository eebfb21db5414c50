// SPDX-License-Identifier: BSL-1.0
// Whose turn it is to write which memory. Steps whose memory overlaps go one after another, in the
// order in which they came; others at once. Pure: standard library only.
#pragma once

#include <algorithm>
#include <list>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weft::optim::detail {

/// Not thread-safe. A turn is granted when no earlier one, granted or waiting, has memory of its
/// own in common; so nobody is overtaken for ever.
template <class Waiter>
class write_lock {
 public:
  /// What a memory is called: the address of its storage, say.
  using memory = const void*;

 private:
  struct turn {
    std::vector<memory> wanted;
    Waiter waiter;
    bool granted = false;
  };

 public:
  using place = typename std::list<turn>::iterator;

  /// At the end of the queue. Granted at once if `is_granted(place)`.
  [[nodiscard]] place enter(std::vector<memory> wanted, Waiter waiter) {
    const auto mine = turns_.insert(turns_.end(), {std::move(wanted), std::move(waiter)});
    mine->granted = std::none_of(turns_.begin(), mine, [&](const turn& earlier) {
      return std::any_of(earlier.wanted.begin(), earlier.wanted.end(), [&](memory m) {
        return std::find(mine->wanted.begin(), mine->wanted.end(), m) != mine->wanted.end();
      });
    });
    return mine;
  }
  [[nodiscard]] static bool is_granted(place p) noexcept { return p->granted; }

  /// Ends a turn, or gives up one that was not granted yet. Returns those whose turn it is now.
  [[nodiscard]] std::vector<Waiter> leave(place done) {
    turns_.erase(done);
    std::vector<Waiter> now;
    std::unordered_set<memory> taken;
    for (turn& t : turns_) {
      const bool free = std::none_of(t.wanted.begin(), t.wanted.end(),
                                     [&](memory m) { return taken.contains(m); });
      if (!t.granted && free) {
        t.granted = true;
        now.push_back(t.waiter);
      }
      taken.insert(t.wanted.begin(), t.wanted.end());
    }
    return now;
  }

  [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }

 private:
  std::list<turn> turns_;
};

}  // namespace weft::optim::detail
