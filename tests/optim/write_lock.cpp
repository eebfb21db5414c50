// SPDX-License-Identifier: BSL-1.0
// Whose turn it is: random steps over a few memories, against a model.
#include <weft/optim/detail/write_lock.hpp>

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

namespace optim_tests {
namespace {

using write_lock = weft::optim::detail::write_lock<int>;

TEST_CASE("write lock: in order where memory overlaps, at once where it does not") {
  static const char memories[4] = {};
  std::size_t waited = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    write_lock queue;
    std::map<int, std::pair<write_lock::place, std::set<const void*>>> all;  // by arrival
    std::set<int> granted;
    for (int next = 0; next < 60 || !all.empty(); ++next) {
      REQUIRE(next < 1000);
      if (next < 60 && random() % 3 != 0) {
        std::set<const void*> wanted;
        for (std::uint32_t i = 0; i <= random() % 3; ++i) wanted.insert(&memories[random() % 4]);
        const auto place = queue.enter({wanted.begin(), wanted.end()}, next);
        if (write_lock::is_granted(place)) granted.insert(next);
        all.emplace(next, std::pair(place, wanted));
      } else if (!all.empty()) {
        auto leaving = std::next(all.begin(), static_cast<std::ptrdiff_t>(random() % all.size()));
        // Mostly one that has its turn; sometimes one gives up.
        if (!granted.contains(leaving->first) && random() % 4 != 0) {
          REQUIRE(!granted.empty());  // the first in line always has it
          leaving = all.find(*granted.begin());
        }
        granted.erase(leaving->first);
        const auto place = leaving->second.first;
        all.erase(leaving);
        for (const int now : queue.leave(place)) CHECK(granted.insert(now).second);
      }
      std::set<const void*> taken;
      for (const auto& [who, turn] : all) {
        bool free = true;
        for (const void* m : turn.second) free = free && !taken.contains(m);
        CHECK(granted.contains(who) == free);
        CHECK(write_lock::is_granted(turn.first) == free);
        waited += free ? 0 : 1;
        taken.insert(turn.second.begin(), turn.second.end());
      }
    }
    CHECK(queue.empty());
  }
  CHECK(waited > 1000);
}

}  // namespace
}  // namespace optim_tests
