// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/preallocated_post.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <core/loop.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace core_waiter_registry {

using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::detail::registered_waiter;
using weft::detail::waiter_registry;
using weft::testing::settle;
using kept = registered_waiter::kept;

struct counts {
  std::atomic<int> abandoned{0};
  std::atomic<int> destroyed{0};
};

class waiter final : public registered_waiter {
 public:
  explicit waiter(counts& c, std::function<void()> then = {})
      : counts_(c), then_(std::move(then)) {}
  ~waiter() override { ++counts_.destroyed; }
  void abandon() noexcept override {
    ++counts_.abandoned;
    if (then_) then_();
  }

 private:
  counts& counts_;
  std::function<void()> then_;
};

TEST_CASE("waiter_registry: one that left is not abandoned, and its io_context is guarded once") {
  counts seen;
  {
    asio::io_context io;
    const auto w = make_intrusive<waiter>(seen);
    CHECK_FALSE(w->leave());  // it never entered
    w->enter(waiter_registry::of(io));
    CHECK(w->use_count() == 2);  // the registry's
    CHECK(w->leave());
    CHECK(w->use_count() == 1);
    CHECK_FALSE(w->leave());
  }
  CHECK(seen.abandoned == 0);
  CHECK(seen.destroyed == 1);
}

TEST_CASE("waiter_registry: whoever still waits when the io_context goes is abandoned once") {
  counts seen;
  std::vector<intrusive_ptr<waiter>> mine;
  std::shared_ptr<waiter_registry> registry;
  {
    asio::io_context io;
    registry = waiter_registry::of(io);
    CHECK(registry == waiter_registry::of(io));
    for (int i = 0; i < 5; ++i) {
      mine.push_back(make_intrusive<waiter>(seen));
      mine.back()->enter(registry);
    }
    make_intrusive<waiter>(seen)->enter(registry);  // only the registry holds it
    CHECK(seen.destroyed == 0);
    CHECK(mine[0]->leave());  // the first, the last and one between
    CHECK(mine[4]->leave());
    CHECK(mine[2]->leave());
    CHECK(waiter_registry::guard_context(registry));
  }
  CHECK(seen.abandoned == 3);
  CHECK(seen.destroyed == 1);
  CHECK_FALSE(mine[1]->leave());
  CHECK_FALSE(waiter_registry::guard_context(registry));
  for (const auto& w : mine) CHECK(w->use_count() == 1);
}

TEST_CASE("waiter_registry: one that its owner keeps may go before the io_context or after it") {
  counts seen;
  auto after = make_intrusive<waiter>(seen);
  {
    asio::io_context io;
    const auto registry = waiter_registry::of(io);
    auto before = make_intrusive<waiter>(seen);
    before->enter(registry, kept::by_owner);
    after->enter(registry, kept::by_owner);
    CHECK(before->use_count() == 1);
    before = nullptr;
    CHECK(seen.destroyed == 1);
  }
  CHECK(seen.abandoned == 1);
  CHECK(seen.destroyed == 1);
  after = nullptr;
  CHECK(seen.destroyed == 2);
}

TEST_CASE("waiter_registry: one may end others, or let them leave, while it is abandoned") {
  counts seen;
  bool left = false;
  {
    auto owned = make_intrusive<waiter>(seen);
    const auto wakes = make_intrusive<waiter>(seen);
    asio::io_context io;
    const auto registry = waiter_registry::of(io);
    owned->enter(registry, kept::by_owner);
    wakes->enter(registry);
    make_intrusive<waiter>(seen, [&] {
      owned = nullptr;
      left = static_cast<bool>(wakes->leave());
    })->enter(registry);  // the last to come goes first
  }
  CHECK(left);
  CHECK(seen.abandoned == 1);
  CHECK(seen.destroyed == 3);
}

/// An io_context whose end is a step of its own: what waits there goes, the object stays.
struct ending_context : asio::io_context {
  ending_context() : asio::io_context(1) {}
  void end() { shutdown(); }
};

TEST_CASE("waiter_registry: leaving on another thread while the io_context ends: one of the two") {
  for (int round = 0; round < 500; ++round) {
    counts seen;
    int posted = 0;
    weft::detail::preallocated_post place;
    const auto w = make_intrusive<waiter>(seen);
    {
      std::optional<ending_context> io(std::in_place);
      w->enter(waiter_registry::of(*io));
      asio::io_context& to = *io;
      std::thread other([&] {
        const auto guard = w->leave();
        if (!guard) return;
        ++posted;
        place(to, [] {});  // the io_context is there, or the sanitizers say so
      });
      io.reset();
      other.join();
    }
    REQUIRE(posted + seen.abandoned == 1);
    REQUIRE(w->use_count() == 1);
  }
}

TEST_CASE(
    "waiter_registry: a guard keeps the io_context though others take theirs without a lock") {
  for (int round = 0; round < 500; ++round) {
    std::optional<ending_context> io(std::in_place);
    const auto registry = waiter_registry::of(*io);
    asio::io_context& to = *io;
    weft::detail::preallocated_post places[2];
    std::vector<std::thread> others;
    for (auto& place : places) {
      others.emplace_back([&to, &place, &registry] {
        if (const auto guard = waiter_registry::guard_context(registry)) place(to, [] {});
      });
    }
    io.reset();
    for (auto& t : others) t.join();
    REQUIRE_FALSE(waiter_registry::guard_context(registry));
  }
}

TEST_CASE("waiter_registry: its owner drops one on another thread while the io_context ends") {
  for (int round = 0; round < 500; ++round) {
    counts seen;
    {
      std::optional<ending_context> io(std::in_place);
      auto w = make_intrusive<waiter>(seen);
      w->enter(waiter_registry::of(*io), kept::by_owner);
      std::thread other([gone = std::move(w)]() mutable { gone = nullptr; });
      io.reset();
      other.join();
    }
    REQUIRE(seen.destroyed == 1);
    REQUIRE(seen.abandoned <= 1);
  }
}

TEST_CASE("waiter_registry: many enter and leave on several threads, none is lost") {
  counts seen;
  std::atomic<int> left{0};
  {
    ending_context io;
    const auto registry = waiter_registry::of(io);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 300; ++i) {
          const auto w = make_intrusive<waiter>(seen);
          w->enter(registry);
          if (i % 3 == 0) continue;
          if (w->leave()) ++left;
        }
      });
    }
    for (auto& t : threads) t.join();
    CHECK(seen.destroyed == 600);
    CHECK(left == 600);
    io.end();
    CHECK(seen.abandoned == 300);
  }
  CHECK(seen.destroyed == 900);
}

}  // namespace core_waiter_registry
