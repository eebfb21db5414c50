// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/task_group.hpp>

#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <doctest/doctest.h>

#include <core/loop.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace core_task_group {

using weft::event;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::task_group;
using weft::with_task_group;
using weft::testing::settle;
using weft::testing::task;

/// Waits, and writes down how it ended.
asio::awaitable<void> child(intrusive_ptr<event> e, std::vector<std::string>& log,
                            std::string name) {
  try {
    co_await event::async_wait(std::move(e), asio::use_awaitable);
  } catch (const std::system_error&) {
    log.push_back(name + " cancelled");
    throw;
  }
  log.push_back(name + " done");
}
asio::awaitable<void> failing(intrusive_ptr<event> e, std::string text) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
  throw weft::rpc_error(weft::errc::peer_died, text);
}
/// Cannot be cancelled.
asio::awaitable<void> stubborn(intrusive_ptr<event> e, std::vector<std::string>& log) {
  co_await asio::this_coro::throw_if_cancelled(false);
  for (int cancelled = 0; cancelled < 10 && !e->is_set(); ++cancelled) {
    asio::error_code ec;
    co_await event::async_wait(e, asio::redirect_error(asio::use_awaitable, ec));
  }
  log.push_back("stubborn done");
}

TEST_CASE("task group: ends when all children have ended") {
  asio::io_context io;
  const auto a = make_intrusive<event>();
  const auto b = make_intrusive<event>();
  std::vector<std::string> log;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(child(a, log, "a"));
    g.spawn(child(b, log, "b"));
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  b->set();
  settle(io);
  CHECK_FALSE(t.ended());
  a->set();
  settle(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
  CHECK(log == std::vector<std::string>{"b done", "a done"});
}

TEST_CASE("task group: the first error ends the others and is thrown") {
  asio::io_context io;
  const auto never = make_intrusive<event>();
  const auto now = make_intrusive<event>();
  std::vector<std::string> log;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(child(never, log, "a"));
    g.spawn(failing(now, "first"));
    g.spawn(child(never, log, "b"));
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  now->set();
  settle(io);
  CHECK(t.ended());
  CHECK(t.what() == "peer died: first");
  CHECK(log == std::vector<std::string>{"a cancelled", "b cancelled"});
}

TEST_CASE("task group: further errors stand in the text of the first") {
  asio::io_context io;
  const auto now = make_intrusive<event>();
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    for (const char* name : {"one", "two", "three"}) g.spawn(failing(now, name));
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  now->set();
  settle(io);
  CHECK(t.what() == "peer died: one (and 2 more failed: peer died: two; peer died: three)");
}

TEST_CASE("task group: an error waits for children that cannot be cancelled") {
  asio::io_context io;
  const auto now = make_intrusive<event>();
  const auto later = make_intrusive<event>();
  std::vector<std::string> log;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(stubborn(later, log));
    g.spawn(failing(now, "x"));
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  now->set();
  settle(io);
  CHECK_FALSE(t.ended());
  later->set();
  settle(io);
  CHECK(t.ended());
  CHECK(t.what() == "peer died: x");
  CHECK(log.size() == 1);
}

TEST_CASE("task group: the body's error cancels the children and is thrown when they have ended") {
  asio::io_context io;
  const auto never = make_intrusive<event>();
  std::vector<std::string> log;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(child(never, log, "a"));
    throw std::runtime_error("the body failed");
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  CHECK(t.ended());
  CHECK(t.what() == "the body failed");
  CHECK(log == std::vector<std::string>{"a cancelled"});
}

TEST_CASE("task group: cancelling the parent cancels the children and waits for them") {
  asio::io_context io;
  const auto never = make_intrusive<event>();
  const auto later = make_intrusive<event>();
  std::vector<std::string> log;
  for (const bool in_body : {false, true}) {
    CAPTURE(in_body);
    log.clear();
    const auto end = make_intrusive<event>();
    auto body = [&](task_group& g) -> asio::awaitable<void> {
      g.spawn(child(never, log, "a"));
      g.spawn(stubborn(end, log));
      if (in_body) co_await event::async_wait(never, asio::use_awaitable);
    };
    task t(io, with_task_group(body));
    settle(io);
    t.cancel();
    settle(io);
    CHECK(log == std::vector<std::string>{"a cancelled"});
    CHECK_FALSE(t.ended());
    end->set();
    settle(io);
    CHECK(t.ended());
    CHECK(t.failed());
  }
}

TEST_CASE("task group: nothing is started after an error") {
  asio::io_context io;
  const auto now = make_intrusive<event>();
  const auto body_goes_on = make_intrusive<event>();
  std::vector<std::string> log;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(failing(now, "x"));
    co_await event::async_wait(body_goes_on, asio::use_awaitable);
    g.spawn(child(now, log, "late"));
  };
  task t(io, with_task_group(body));
  settle(io);
  now->set();
  settle(io);
  body_goes_on->set();
  settle(io);
  CHECK(t.what() == "peer died: x");
  CHECK(log.empty());
}

TEST_CASE("task group: a child that fails at once") {
  asio::io_context io;
  auto fail = []() -> asio::awaitable<void> {
    throw std::runtime_error("at once");
    co_return;
  };
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(fail());
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  CHECK(t.what() == "at once");
}

TEST_CASE("task group: one without children ends at once") {
  asio::io_context io;
  auto body = [](task_group&) -> asio::awaitable<void> { co_return; };
  task t(io, with_task_group(body));
  settle(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
}

TEST_CASE("task group: nothing is kept of children that have ended") {
  asio::io_context io;
  const auto end = make_intrusive<event>();
  auto brief = [](intrusive_ptr<event> wait) -> asio::awaitable<void> {
    if (wait) co_await event::async_wait(std::move(wait), asio::use_awaitable);
  };
  // What is kept of a child holds its executor, and that the scope.
  const auto scope = make_intrusive<weft::call_scope>();
  std::vector<std::uint32_t> kept;
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 100; ++i) {
        const auto gate =
            i % 2 == 0 ? make_intrusive<event>() : nullptr;  // every other ends at once
        g.spawn(brief(gate));
        if (gate) gate->set();
      }
      for (int turn = 0; turn < 3; ++turn) co_await asio::post(asio::use_awaitable);
      kept.push_back(scope->use_count());
    }
    co_await event::async_wait(end, asio::use_awaitable);
  };
  task t(weft::scoped(io, intrusive_ptr<const weft::call_scope>(scope)), with_task_group(body));
  settle(io);
  REQUIRE(kept.size() == 3);
  CHECK(kept[1] == kept[0]);
  CHECK(kept[2] == kept[0]);
  CHECK(kept[0] < 50);
  end->set();
  settle(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
}

TEST_CASE("task group: a child that stops the group at once is cancelled, too") {
  asio::io_context io;
  std::vector<std::string> log;
  auto stops = [&](task_group& g) -> asio::awaitable<void> {
    g.cancel();
    co_await child(make_intrusive<event>(), log, "a");
  };
  auto body = [&](task_group& g) -> asio::awaitable<void> {
    g.spawn(stops(g));
    co_return;
  };
  task t(io, with_task_group(body));
  settle(io);
  CHECK(t.ended());
  CHECK(log == std::vector<std::string>{"a cancelled"});
}

}  // namespace core_task_group
