// SPDX-License-Identifier: BSL-1.0
// The ledger's steps while memory lacks: one that throws may be repeated, one that cannot be refused
// is made up for.
#include "shortage.hpp"
#include <weft/rref/ledger.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace poor_ledgers {

using namespace weft::rref_protocol;
using weft::testing::all_of_them;
using weft::testing::shortage;

/// Three workers whose messages are carried by hand.
struct trio {
  ledger books[3]{{0, 3}, {1, 3}, {2, 3}};
  outputs out[3];

  /// Until nobody says anything.
  void settle() {
    for (int turns = 0; turns < 100; ++turns) {
      bool quiet = true;
      for (rank from = 0; from < 3; ++from) {
        books[from].catch_up(out[from]);
        const auto messages = std::exchange(out[from].messages, {});
        out[from].events.clear();
        for (const auto& m : messages) {
          quiet = false;
          CHECK(books[m.to].frame(from, m.what, out[m.to]) != received::refused);
        }
      }
      if (quiet) return;
    }
    FAIL("they never fall silent");
  }
  [[nodiscard]] bool idle() const { return books[0].idle() && books[1].idle() && books[2].idle(); }
  [[nodiscard]] std::string describe() const {
    return books[0].describe() + books[1].describe() + books[2].describe();
  }
};

/// Runs `step` with the n-th allocation failing and again until it does not throw, for all n.
void at_every_point(
    const std::function<void(trio&, const std::function<void(std::function<void()>)>&)>& story) {
  bool struck = true;
  int failed = 0;
  for (long n = 1; struck && n < 100; ++n) {
    CAPTURE(n);
    struck = false;
    trio t;
    // Every step of the story lacks its n-th allocation.
    story(t, [&](const std::function<void()>& step) {
      try {
        const shortage now(n, 0);
        step();
        struck = struck || shortage::struck();
      } catch (const std::bad_alloc&) {
        struck = true;
        ++failed;
        step();
      }
    });
    t.settle();
    INFO(t.describe());
    CHECK(t.idle());
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

TEST_CASE("shortage: a reference made, handed on and dropped leaves nothing in the ledgers") {
  at_every_point([](trio& t, const auto& lacking) {
    std::optional<creation> made;
    lacking([&] { made = t.books[0].create_remote(1); });
    REQUIRE(made);
    bool done = false;  // not within CHECK, which would catch
    lacking([&] { done = t.books[1].created(0, *made, t.out[1]) == received::accepted; });
    CHECK(done);
    lacking([&] { done = t.books[1].value_ready(made->id, t.out[1]); });
    CHECK(done);
    std::optional<transfer> given;
    lacking([&] { given = t.books[0].transfer_out(made->id, 2); });
    REQUIRE(given);
    std::optional<import_result> taken;
    lacking([&] { taken = t.books[2].transfer_in(0, *given, t.out[2]); });
    REQUIRE(taken);
    CHECK(taken->held());
    t.settle();
    lacking([&] { done = t.books[0].drop_local_ref(made->id, t.out[0]); });
    CHECK(done);
    lacking([&] { done = t.books[2].drop_local_ref(made->id, t.out[2]); });
    CHECK(done);
  });
}

TEST_CASE("shortage: a request that was never sent, and a peer that is lost, are made up for") {
  trio t;
  const auto made = t.books[0].create_remote(1);
  REQUIRE(made);
  const auto given = t.books[0].transfer_out(made->id, 2);
  REQUIRE(given);
  CHECK(t.books[2].transfer_in(0, *given, t.out[2])->held());
  const auto of_two = t.books[2].create_remote(0);
  REQUIRE(of_two);
  CHECK(t.books[0].created(2, *of_two, t.out[0]) == received::accepted);
  {
    const shortage now(1, all_of_them);
    t.books[0].creation_dropped(made->id, t.out[0]);
    t.books[0].value_failed(of_two->id, t.out[0]);
    t.books[0].drop_local_ref(made->id, t.out[0]);
    t.books[2].drop_local_ref(made->id, t.out[2]);
    t.books[2].drop_local_ref(of_two->id, t.out[2]);
  }
  t.settle();
  INFO(t.describe());
  CHECK(t.idle());

  const auto lost = t.books[0].create_remote(1);
  REQUIRE(lost);
  {
    const shortage now(1, all_of_them);
    t.books[0].peer_lost(1, t.out[0]);
  }
  t.books[0].catch_up(t.out[0]);
  REQUIRE(t.books[0].imported(lost->id));
  CHECK(t.books[0].imported(lost->id)->state == import_state::broken);
  CHECK(t.books[0].imported(lost->id)->why == cause::owner_died);
  CHECK(t.books[0].drop_local_ref(lost->id, t.out[0]));
  CHECK_FALSE(t.books[0].imported(lost->id));
}

}  // namespace poor_ledgers
