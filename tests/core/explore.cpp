// SPDX-License-Identifier: BSL-1.0
// The explorer itself: that it sees what is wrong, and only that.
#include "core/explore.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace explored {

using exploring::broken;
using exploring::encoder;
using exploring::exploration;

/// Two that count to three and take a lock for it, or do not.
struct counting {
  enum class kind {
    right,
    never_unlocks,
    forgets_the_owner,
    checks_the_sum,
    waits_for_ever,
    turns,
    is_saved_by_a_fault
  };
  struct move {
    unsigned who;
    bool fault = false;
  };
  static bool optional(const move& m) { return m.fault; }
  std::vector<move> moves() const {
    std::vector<move> out;
    for (const unsigned who : {0u, 1u}) {
      if (n[who] < 3 && (owner == 2 || owner == who)) out.push_back({who});
    }
    if (what == kind::is_saved_by_a_fault && n[0] + n[1] == 5) return {move{0, true}};
    return out;
  }
  std::string name(const move& m) const { return "step of " + std::to_string(m.who); }
  void make(const move& m) {
    if (m.fault) {
      n[0] = n[1] = 3;
      owner = 2;
      return;
    }
    if (owner == 2) {
      owner = m.who;
      return;
    }
    ++n[m.who];
    if (what != kind::never_unlocks) owner = 2;
    if (what == kind::turns && n[0] == 2) n[0] = 1;
    if (what == kind::waits_for_ever && n[0] == 2 && n[1] == 2) owner = 3;
  }
  void audit() const {
    if (what == kind::checks_the_sum) exploring::hold(n[0] + n[1] < 3, "the sum is", n[0], n[1]);
  }
  void finish() const { exploring::hold(n[0] == 3 && n[1] == 3, "both have counted"); }
  void encode(encoder& e) const {
    e << n[0] << n[1];
    if (what != kind::forgets_the_owner) e << owner;
  }

  kind what = kind::right;
  unsigned n[2] = {0, 0};
  unsigned owner = 2;
};

std::string failure_of(counting::kind what, std::size_t most = 1000) {
  return exploration<counting>({what}, most, 1).run().failure;
}

TEST_CASE("explorer: it counts every state once") {
  const auto out = exploration<counting>({}, 1000, 1).run();
  CHECK(out.failure.empty());
  CHECK(out.states == 16 + 2 * 12);  // unlocked; locked by either, which has not counted to three
  CHECK(out.moves == 2 * 12 + 2 * 12);
  CHECK(out.ends == 1);
}

TEST_CASE("explorer: what is broken is told with the shortest way to it") {
  CHECK(failure_of(counting::kind::checks_the_sum).starts_with("the sum is"));
  const std::string way = failure_of(counting::kind::checks_the_sum);
  CHECK(std::count(way.begin(), way.end(), '\n') == 1 + 6);
}

TEST_CASE("explorer: an end in which something is missing is a failure") {
  CHECK(failure_of(counting::kind::never_unlocks).starts_with("both have counted"));
  CHECK(failure_of(counting::kind::waits_for_ever).starts_with("both have counted"));
  CHECK(failure_of(counting::kind::is_saved_by_a_fault).starts_with("both have counted"));
}

TEST_CASE("explorer: going round for ever is a failure") {
  CHECK(failure_of(counting::kind::turns).starts_with("no end can be reached"));
}

TEST_CASE("explorer: so is a bound that is hit, and a state that is not encoded whole") {
  CHECK(failure_of(counting::kind::right, 39).starts_with("more than 39 states"));
  CHECK(failure_of(counting::kind::right, 40).empty());
  CHECK(failure_of(counting::kind::forgets_the_owner).starts_with("a state that is encoded like"));
}

class hidden {
 public:
  hidden(int a, int b) : first_(a), second_(b) {}

 private:
  int first_;
  int second_;
};

}  // namespace explored

template struct exploring::revealed<explored::hidden, &explored::hidden::first_,
                                    &explored::hidden::second_>;

namespace explored {

TEST_CASE("explorer: private members can be named") {
  const hidden object(3, 4);
  CHECK(exploring::with_members(object, [](int a, int b) { return 10 * a + b; }) == 34);
}

}  // namespace explored
