// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>

#include <asio/bind_executor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/loop.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace core_scope {

using weft::call_scope;
using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::scoped;
using weft::this_scope;
using weft::with_scope;
using weft::testing::finish;
using weft::testing::settle;
using weft::testing::task;

intrusive_ptr<const call_scope> numbered(std::uint64_t trace) {
  auto s = make_intrusive<call_scope>();
  s->trace = trace;
  return s;
}
std::uint64_t trace() {
  const auto s = this_scope();
  return s ? s->trace : 0;
}

TEST_CASE("scope: installed after every resumption") {
  asio::io_context io;
  std::vector<std::uint64_t> seen;
  const auto e = make_intrusive<event>();
  auto body = [&](asio::io_context& c) -> asio::awaitable<void> {
    seen.push_back(trace());
    co_await asio::post(asio::use_awaitable);
    seen.push_back(trace());
    co_await event::async_wait(e, asio::use_awaitable);
    seen.push_back(trace());
    asio::steady_timer timer(c, std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
    seen.push_back(trace());
  };
  task t(scoped(io, numbered(7)), body(io));
  settle(io);
  e->set();  // from outside of any scope
  finish(io);
  CHECK(t.ended());
  CHECK(seen == std::vector<std::uint64_t>{7, 7, 7, 7});
}

TEST_CASE("scope: a child that is awaited shares it, also when it throws") {
  asio::io_context io;
  std::vector<std::uint64_t> seen;
  auto child = [&]() -> asio::awaitable<void> {
    co_await asio::post(asio::use_awaitable);
    seen.push_back(trace());
    throw std::runtime_error("x");
  };
  auto parent = [&]() -> asio::awaitable<void> {
    try {
      co_await child();
    } catch (const std::runtime_error&) {
      seen.push_back(trace());
    }
  };
  task t(scoped(io, numbered(3)), parent());
  settle(io);
  CHECK(seen == std::vector<std::uint64_t>{3, 3});
}

TEST_CASE("scope: with_scope gives a child another one, and the parent keeps its own") {
  asio::io_context io;
  std::vector<std::uint64_t> seen;
  auto child = [&]() -> asio::awaitable<int> {
    seen.push_back(trace());
    co_await asio::post(asio::use_awaitable);
    seen.push_back(trace());
    co_return 5;
  };
  auto parent = [&](asio::io_context& c) -> asio::awaitable<void> {
    seen.push_back(trace());
    const int five = co_await with_scope(c, numbered(2), child());
    CHECK(five == 5);
    seen.push_back(trace());
    co_await asio::post(asio::use_awaitable);
    seen.push_back(trace());
  };
  task t(scoped(io, numbered(1)), parent(io));
  settle(io);
  CHECK(t.ended());
  CHECK(seen == std::vector<std::uint64_t>{1, 2, 2, 1, 1});
}

TEST_CASE("scope: errors of a child in another scope are thrown to the parent") {
  asio::io_context io;
  auto child = []() -> asio::awaitable<void> {
    co_await asio::post(asio::use_awaitable);
    throw std::runtime_error("child");
  };
  auto parent = [&](asio::io_context& c) -> asio::awaitable<void> {
    try {
      co_await with_scope(c, numbered(2), child());
      FAIL("nothing was thrown");
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()) == "child");
      CHECK(trace() == 1);
    }
  };
  task t(scoped(io, numbered(1)), parent(io));
  settle(io);
  CHECK_FALSE(t.failed());
}

TEST_CASE("scope: cancelling a parent cancels a child in another scope") {
  asio::io_context io;
  const auto never = make_intrusive<event>();
  std::string ending;
  auto child = [&]() -> asio::awaitable<void> {
    try {
      co_await event::async_wait(never, asio::use_awaitable);
    } catch (const std::system_error&) {
      ending = "cancelled in scope " + std::to_string(trace());
      throw;
    }
  };
  auto parent = [&](asio::io_context& c) -> asio::awaitable<void> {
    co_await with_scope(c, numbered(2), child());
  };
  task t(scoped(io, numbered(1)), parent(io));
  settle(io);
  t.cancel();
  settle(io);
  CHECK(t.failed());
  CHECK(ending == "cancelled in scope 2");
}

TEST_CASE("scope: coroutines that take turns keep their own, and nothing leaks to the loop") {
  asio::io_context io;
  int wrong = 0;
  auto body = [&](std::uint64_t mine) -> asio::awaitable<void> {
    for (int i = 0; i < 50; ++i) {
      if (trace() != mine) ++wrong;
      co_await asio::post(asio::use_awaitable);
    }
  };
  std::vector<std::unique_ptr<task>> tasks;
  for (std::uint64_t n = 1; n <= 8; ++n) {
    tasks.push_back(std::make_unique<task>(scoped(io, numbered(n)), body(n)));
  }
  auto outside = [&]() -> asio::awaitable<void> {
    for (int i = 0; i < 50; ++i) {
      if (this_scope()) ++wrong;
      co_await asio::post(asio::use_awaitable);
    }
  };
  task plain(io, outside());
  settle(io);
  CHECK(plain.ended());
  CHECK(wrong == 0);
  CHECK_FALSE(this_scope());
}

TEST_CASE("scope: a plain handler on a scoped executor runs inside it") {
  asio::io_context io;
  std::uint64_t seen = 0;
  asio::post(scoped(io, numbered(4)), [&] { seen = trace(); });
  settle(io);
  CHECK(seen == 4);
}

TEST_CASE("scope: started work inherits what its executor carries") {
  asio::io_context io;
  std::uint64_t seen = 0;
  auto work = [&]() -> asio::awaitable<void> {
    co_await asio::post(asio::use_awaitable);
    seen = trace();
  };
  auto parent = [&]() -> asio::awaitable<void> {
    co_await weft::start_on(co_await asio::this_coro::executor, work());
  };
  task t(scoped(io, numbered(6)), parent());
  settle(io);
  CHECK(seen == 6);
}

TEST_CASE("scope: lives as long as something runs in it") {
  struct watched final : weft::ref_counted {
    explicit watched(bool& d) : dead(d) {}
    ~watched() override { dead = true; }
    bool& dead;
  };
  asio::io_context io;
  bool dead = false;
  const auto e = make_intrusive<event>();
  auto body = [&]() -> asio::awaitable<void> {
    co_await event::async_wait(e, asio::use_awaitable);
    CHECK_FALSE(dead);
  };
  auto s = make_intrusive<call_scope>();
  s->autograd = make_intrusive<watched>(dead);
  {
    task t(scoped(io, std::move(s)), body());
    settle(io);
    CHECK_FALSE(dead);
    e->set();
    settle(io);
    CHECK(t.ended());
  }
  CHECK(dead);
}

TEST_CASE("scope: an executor in a scope fits any_io_executor without an allocation") {
  CHECK(sizeof(weft::scope_executor<asio::io_context::executor_type>) <= 2 * sizeof(void*));
  asio::io_context io;
  const auto a = numbered(1);
  CHECK(scoped(io, a) == scoped(io, a));
  CHECK(scoped(io, a) != scoped(io, numbered(1)));
}

/// Counts its depth on this thread; `leave` checks what `enter` saved.
struct counting_mode final : weft::thread_mode {
  void enter(saved& before) const noexcept override {
    before.words[0] = static_cast<std::uint64_t>(level);
    ++level;
    ++entered;
  }
  void leave(const saved& before) const noexcept override {
    --level;
    ++left;
    if (before.words[0] != static_cast<std::uint64_t>(level)) ++unmatched;
  }
  static inline int level = 0;
  static inline int entered = 0;
  static inline int left = 0;
  static inline int unmatched = 0;
};

TEST_CASE("thread mode: entered and left in pairs around every resumption") {
  counting_mode::level = counting_mode::entered = counting_mode::left = 0;
  counting_mode::unmatched = 0;
  asio::io_context io;
  auto s = make_intrusive<call_scope>();
  s->mode = make_intrusive<counting_mode>();
  int inside = 0;
  int outside = 0;
  auto body = [&]() -> asio::awaitable<void> {
    for (int i = 0; i < 10; ++i) {
      if (counting_mode::level == 1) ++inside;
      co_await asio::post(asio::use_awaitable);
    }
  };
  auto other = [&]() -> asio::awaitable<void> {
    for (int i = 0; i < 10; ++i) {
      if (counting_mode::level == 0) ++outside;
      co_await asio::post(asio::use_awaitable);
    }
  };
  task with(scoped(io, s), body());
  task without(io, other());
  settle(io);
  CHECK(inside == 10);
  CHECK(outside == 10);
  CHECK(counting_mode::level == 0);
  CHECK(counting_mode::entered == counting_mode::left);
  CHECK(counting_mode::entered >= 10);
  CHECK(counting_mode::unmatched == 0);
}

TEST_CASE("scope: a copy carries everything") {
  auto s = make_intrusive<call_scope>();
  s->deadline = call_scope::time_point{} + std::chrono::seconds(5);
  s->trace = 1;
  s->span = 2;
  s->mode = make_intrusive<counting_mode>();
  s->autograd = numbered(9);
  const auto copy = s->copy();
  CHECK(copy->deadline == s->deadline);
  CHECK(copy->trace == 1);
  CHECK(copy->span == 2);
  CHECK(copy->mode == s->mode);
  CHECK(copy->autograd == s->autograd);
}

}  // namespace core_scope
