// SPDX-License-Identifier: BSL-1.0
// What a reference costs, in bytes of operator new, and that it is given back with the last one.
//
// On 64 bits, libstdc++, without libtorch, as read from the types (glibc rounds up):
//   its user    120  import's entry, 40 more if a third worker gave it; 72 rref's handle
//   its owner   152  entry, 56 each holder          152  value, 40 + 136 its way home, and itself
//   a gap        40  each creation behind it, until it closes
// The bounds leave half as much again for another library's nodes; another table does not fit.
#include "pure.hpp"
#include <weft/core/detail/thread_sanitizer.hpp>
#include <weft/rref/ledger.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include <malloc.h>

// ThreadSanitizer's runtime library defines operator new itself: there, nothing can be counted.
#if !defined(WEFT_THREAD_SANITIZER)

namespace rref_memory {

/// Of all threads, now.
constinit std::atomic<std::int64_t> bytes_in_use{0};

void* counted(void* block) noexcept {
  bytes_in_use.fetch_add(static_cast<std::int64_t>(malloc_usable_size(block)),
                         std::memory_order_relaxed);
  return block;
}
void give_back(void* block) noexcept {
  bytes_in_use.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(block)),
                         std::memory_order_relaxed);
  std::free(block);
}

}  // namespace rref_memory

void* operator new(std::size_t size) {
  if (void* p = std::malloc(size > 0 ? size : 1)) return rref_memory::counted(p);
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return rref_memory::counted(std::malloc(size > 0 ? size : 1));
}
void* operator new[](std::size_t size, const std::nothrow_t& t) noexcept {
  return operator new(size, t);
}
void operator delete(void* p) noexcept { rref_memory::give_back(p); }
void operator delete[](void* p) noexcept { rref_memory::give_back(p); }
void operator delete(void* p, std::size_t) noexcept { rref_memory::give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { rref_memory::give_back(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { rref_memory::give_back(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { rref_memory::give_back(p); }

namespace rref_memory {

using namespace weft::testing;
using weft::rref;
using weft::worker;
namespace protocol = weft::rref_protocol;
using protocol::creation;
using protocol::rank;
using protocol::received;

constexpr std::int64_t many = 10'000;

// For one reference:
constexpr std::int64_t most_at_user = 200;
constexpr std::int64_t most_at_owner = 350;       // made and registered there, by its creator
constexpr std::int64_t most_for_another = 350;    // at another user, and its row at the owner
constexpr std::int64_t most_behind_a_gap = 400;   // at the owner
constexpr std::int64_t most_between_two = 1'200;  // workers, with a small object
constexpr std::int64_t least_of_any = 32;         // less was not counted

/// Three ledgers, whose messages are carried by hand.
struct books {
  static constexpr rank owner = 0, user = 1, other = 2;
  protocol::ledger at[3]{{owner, 3}, {user, 3}, {other, 3}};
  protocol::outputs out[3];

  /// Until nobody says anything; keeps no memory.
  void carry() {
    for (int turns = 0; turns < 100; ++turns) {
      bool quiet = true;
      for (rank from = 0; from < 3; ++from) {
        protocol::outputs said;
        std::swap(said, out[from]);
        for (const auto& m : said.messages) {
          quiet = false;
          wrong += at[m.to].frame(from, m.what, out[m.to]) == received::accepted ? 0 : 1;
        }
      }
      if (quiet) return;
    }
    ++wrong;
  }
  void make(const creation& what) {
    wrong += at[owner].created(user, what, out[owner]) == received::accepted ? 0 : 1;
    wrong += at[owner].value_ready(what.id, out[owner]) ? 0 : 1;
    carry();
  }
  void share(const creation& what) {
    const auto given = at[user].transfer_out(what.id, other);
    const auto taken = given ? at[other].transfer_in(user, *given, out[other]) : std::nullopt;
    wrong += taken && taken->held() ? 0 : 1;
    carry();
  }
  void drop(rank who, const creation& what) {
    wrong += at[who].drop_local_ref(what.id, out[who]) ? 0 : 1;
    carry();
  }
  [[nodiscard]] bool idle() const {
    return at[owner].idle() && at[user].idle() && at[other].idle();
  }

  int wrong = 0;  // steps that did not do what they should
};

struct costs {
  std::int64_t user = 0, owner = 0, another = 0, left = 0;
};
/// So many references are asked for, made, handed to another worker and dropped by both.
costs of_references(books& b, std::vector<creation>& made, std::int64_t number) {
  made.clear();
  const std::int64_t start = bytes_in_use;
  for (std::int64_t i = 0; i < number; ++i) made.push_back(*b.at[b.user].create_remote(b.owner));
  const std::int64_t asked = bytes_in_use;
  for (const auto& c : made) b.make(c);
  const std::int64_t known = bytes_in_use;
  for (const auto& c : made) b.share(c);
  const std::int64_t shared = bytes_in_use;
  for (const auto& c : made) b.drop(b.user, c);
  for (const auto& c : made) b.drop(b.other, c);
  return {asked - start, known - asked, shared - known, bytes_in_use - start};
}

struct small {
  using immediate_constructor = small;
  int value;
  explicit small(int v) : value(v) { ++alive(); }
  small(const small&) = delete;
  small& operator=(const small&) = delete;
  ~small() { --alive(); }
  int get() { return value; }
  static std::atomic<int>& alive() {
    static std::atomic<int> it{0};
    return it;
  }
};

namespace {

TEST_CASE("rref memory: a reference costs its ledgers little, and nothing once it is dropped") {
  books b;
  std::vector<creation> made;
  made.reserve(many);
  static_cast<void>(of_references(b, made, 1));  // what they have for their peers stays
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    const costs c = of_references(b, made, many);
    CHECK(b.wrong == 0);
    CHECK(c.user / many >= least_of_any);
    CHECK(c.user / many <= most_at_user);
    CHECK(c.owner / many >= least_of_any);
    CHECK(c.owner / many <= most_at_owner);
    CHECK(c.another / many >= least_of_any);
    CHECK(c.another / many <= most_for_another);
    CHECK(b.idle());
    CHECK(c.left < many);  // not a byte for each
  }
}

TEST_CASE("rref memory: what waits behind a gap costs little more, which is freed when it closes" *
          doctest::test_suite("all")) {
  const auto behind =
      static_cast<std::int64_t>(protocol::ledger_limits().creation_window) - 1;  // and no more
  books b;
  std::vector<creation> made;
  made.reserve(static_cast<std::size_t>(behind) + 1);
  static_cast<void>(of_references(b, made, 1));
  made.clear();
  const std::int64_t start = bytes_in_use;
  for (std::int64_t i = 0; i <= behind; ++i) made.push_back(*b.at[b.user].create_remote(b.owner));
  const std::int64_t asked = bytes_in_use;
  for (std::size_t i = 1; i < made.size(); ++i) b.make(made[i]);
  const std::int64_t open = bytes_in_use;
  b.make(made[0]);
  const std::int64_t closed = bytes_in_use;
  CHECK(b.wrong == 0);
  CHECK((open - asked) / behind >= least_of_any);
  CHECK((open - asked) / behind <= most_behind_a_gap);
  CHECK((open - closed) / behind >= 24);  // that they had come
  CHECK((closed - asked) / (behind + 1) <= most_at_owner);
  for (const auto& c : made) b.drop(b.user, c);
  CHECK(b.wrong == 0);
  CHECK(b.idle());
  CHECK(bytes_in_use - start < behind);
}

TEST_CASE("rref memory: a reference between workers costs little, and nothing once dropped" *
          doctest::test_suite("all")) {
  run_pure(2, over::inproc, 0, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    std::vector<rref<small>> held;
    held.reserve(many);
    // Queues and tables keep the room that they once needed: the best of some rounds tells.
    std::int64_t cost = std::numeric_limits<std::int64_t>::max();
    std::int64_t left = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < 4; ++round) {
      const std::int64_t start = bytes_in_use;
      for (std::int64_t i = 0; i < many; ++i) {
        held.push_back(me.peer(1).make<small>(static_cast<int>(i)));
      }
      CHECK(co_await held.back().call<&small::get>() == many - 1);
      CHECK(co_await eventually(
          [&] { return calls_waiting(me, 1) == 0 && rrefs(all, 1).counters().holders == many; }));
      CHECK(small::alive().load() == many);
      const std::int64_t full = bytes_in_use;
      held.clear();
      CHECK(co_await nothing_is_left(all));
      CHECK(co_await eventually([] { return small::alive().load() == 0; }));
      cost = std::min(cost, full - start);
      left = std::min(left, bytes_in_use - start);
    }
    CHECK(cost / many >= 4 * least_of_any);
    CHECK(cost / many <= most_between_two);
    CHECK(left < 4 * many);
  });
}

}  // namespace
}  // namespace rref_memory

#endif
