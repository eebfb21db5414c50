// SPDX-License-Identifier: BSL-1.0
#include <weft/core/future.hpp>

#include <asio/post.hpp>
#include <asio/this_coro.hpp>
#include <doctest/doctest.h>

#include <core/loop.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace core_future {

using weft::event;
using weft::future;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::start_on;
using weft::testing::settle;
using weft::testing::task;

asio::awaitable<int> after(intrusive_ptr<event> e, int value) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
  co_return value;
}
asio::awaitable<void> fail_after(intrusive_ptr<event> e) {
  co_await event::async_wait(std::move(e), asio::use_awaitable);
  throw std::runtime_error("the work failed");
}
/// Says how it ended.
asio::awaitable<int> watched(intrusive_ptr<event> e, std::string& ending) {
  try {
    co_await event::async_wait(std::move(e), asio::use_awaitable);
    ending = "done";
  } catch (const std::system_error&) {
    ending = "cancelled";
    throw;
  }
  co_return 1;
}

struct no_default {
  explicit no_default(int v) : value(v) {}
  int value;
};
asio::awaitable<no_default> make_no_default() { co_return no_default(7); }

TEST_CASE("future: work runs before anybody awaits it") {
  asio::io_context io;
  bool begun = false;
  auto work = [](bool& flag) -> asio::awaitable<void> {
    flag = true;
    co_return;
  };
  auto parent = [&](bool& flag) -> asio::awaitable<void> {
    auto f = start_on(co_await asio::this_coro::executor, work(flag));
    CHECK(flag);  // at once, since it is already there
    CHECK(f.ready());
    co_await std::move(f);
  };
  task t(io, parent(begun));
  settle(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
}

TEST_CASE("future: one that is ready goes on behind what runs, never inside it, and not for ever") {
  asio::io_context io;
  auto value = []() -> asio::awaitable<int> { co_return 1; };
  int taken = 0;
  bool inside = false;
  auto one = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    taken += co_await start_on(here, value());
  };
  auto many = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    for (int i = 0; i < 1000; ++i) {
      inside = true;
      asio::co_spawn(here, one(), [&](std::exception_ptr) { CHECK_FALSE(inside); });
      inside = false;
      taken += co_await start_on(here, value());
      co_await start_on(here, one());
    }
  };
  int seen = 0;
  task t(io, many());
  asio::post(io, [&] { seen = taken; });
  settle(io);
  CHECK(t.ended());
  CHECK_FALSE(t.failed());
  CHECK(taken == 3000);
  CHECK(seen < 1000);  // others had their turn
}

TEST_CASE("future: what throws behind a ready wait leaves the others where they are") {
  asio::io_context io;
  auto value = []() -> asio::awaitable<int> { co_return 1; };
  int taken = 0;
  auto one = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    for (int i = 0; i < 3; ++i) taken += co_await start_on(here, value());
  };
  for (int i = 0; i < 8; ++i) {
    asio::co_spawn(io, one(), [i](std::exception_ptr) {
      if (i % 2 == 0) throw std::runtime_error("of a completion handler");
    });
  }
  int thrown = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      settle(io);
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  CHECK(thrown == 4);
  CHECK(taken == 24);
}

TEST_CASE("future: move-await takes the result, get copies it as often as wanted") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  auto a = start_on(io.get_executor(), after(e, 5));
  auto b = start_on(io.get_executor(), after(e, 6));
  int first = 0;
  int second = 0;
  int third = 0;
  auto use = [&](future<int>& x, future<int>& y) -> asio::awaitable<void> {
    first = co_await x.copy();
    second = co_await x.copy();
    third = co_await std::move(y);
  };
  task t(io, use(a, b));
  settle(io);
  CHECK_FALSE(a.ready());
  e->set();
  settle(io);
  CHECK(t.ended());
  CHECK(first == 5);
  CHECK(second == 5);
  CHECK(third == 6);
  CHECK(a.ready());
  CHECK_FALSE(b.valid());
}

TEST_CASE("future: several coroutines get one result") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  auto f = start_on(io.get_executor(), after(e, 3));
  int sum = 0;
  auto use = [&](future<int>& x) -> asio::awaitable<void> { sum += co_await x.copy(); };
  task a(io, use(f));
  task b(io, use(f));
  settle(io);
  e->set();
  settle(io);
  CHECK(sum == 6);
}

TEST_CASE("future: what the work throws is thrown to every awaiter") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  auto f = start_on(io.get_executor(), fail_after(e));
  auto g = start_on(io.get_executor(), fail_after(e));
  auto get = [](future<void>& x) -> asio::awaitable<void> { co_await x.copy(); };
  auto take = [](future<void> x) -> asio::awaitable<void> { co_await std::move(x); };
  task a(io, get(f));
  task b(io, get(f));
  task c(io, take(std::move(g)));
  settle(io);
  e->set();
  settle(io);
  CHECK(a.what() == "the work failed");
  CHECK(b.what() == "the work failed");
  CHECK(c.what() == "the work failed");
}

TEST_CASE("future: a result without a default constructor comes by get") {
  asio::io_context io;
  auto f = start_on(io.get_executor(), make_no_default());
  int value = 0;
  auto use = [&](future<no_default>& x) -> asio::awaitable<void> {
    value = (co_await x.copy()).value;
  };
  task t(io, use(f));
  settle(io);
  CHECK(value == 7);
}

struct only_moved {
  explicit only_moved(int v) : value(std::make_unique<int>(v)) {}
  std::unique_ptr<int> value;
};
asio::awaitable<only_moved> make_only_moved() { co_return only_moved(8); }

TEST_CASE("future: a result that is neither default constructible nor copyable is moved out") {
  asio::io_context io;
  int value = 0;
  auto use = [&](future<only_moved> x) -> asio::awaitable<void> {
    value = *(co_await std::move(x).get()).value;
  };
  task t(io, use(start_on(io.get_executor(), make_only_moved())));
  settle(io);
  CHECK(value == 8);
}

TEST_CASE("future: dropping the wait that moves a result out cancels the work") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::string ending;
  {
    const auto waits = std::move(start_on(io.get_executor(), watched(e, ending))).get();
    settle(io);
  }
  settle(io);
  CHECK(ending == "cancelled");
}

TEST_CASE("future: dropping an unfinished one cancels the work") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::string ending;
  {
    const auto f = start_on(io.get_executor(), watched(e, ending));
    settle(io);
  }
  settle(io);
  CHECK(ending == "cancelled");
}

TEST_CASE("future: assigning over an unfinished one cancels its work") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::string old_ending;
  std::string new_ending;
  auto f = start_on(io.get_executor(), watched(e, old_ending));
  settle(io);
  f = start_on(io.get_executor(), watched(e, new_ending));
  settle(io);
  CHECK(old_ending == "cancelled");
  CHECK(new_ending.empty());
  e->set();
  settle(io);
  CHECK(new_ending == "done");
}

TEST_CASE("future: detached work runs to its end") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::string ending;
  {
    auto f = start_on(io.get_executor(), watched(e, ending));
    settle(io);
    std::move(f).detach();
  }
  settle(io);
  CHECK(ending.empty());
  e->set();
  settle(io);
  CHECK(ending == "done");
}

TEST_CASE("future: cancelling a get leaves the work alone, cancelling a move-await does not") {
  asio::io_context io;
  const auto e = make_intrusive<event>();
  std::string kept_ending;
  std::string taken_ending;
  auto kept = start_on(io.get_executor(), watched(e, kept_ending));
  auto get = [](future<int>& x) -> asio::awaitable<void> { static_cast<void>(co_await x.copy()); };
  auto take = [](future<int> x) -> asio::awaitable<void> {
    static_cast<void>(co_await std::move(x));
  };
  task getting(io, get(kept));
  task taking(io, take(start_on(io.get_executor(), watched(e, taken_ending))));
  settle(io);
  getting.cancel();
  taking.cancel();
  settle(io);
  CHECK(getting.failed());
  CHECK(taking.failed());
  CHECK(getting.what() == taking.what());  // one outcome for every wait
  CHECK(getting.what().find("waiting for a future") != std::string::npos);
  CHECK(kept_ending.empty());
  CHECK(taken_ending == "cancelled");
  e->set();
  settle(io);
  CHECK(kept_ending == "done");
}

TEST_CASE("future: an empty one throws invalid_argument") {
  asio::io_context io;
  auto get = [](future<int> x) -> asio::awaitable<void> { static_cast<void>(co_await x.copy()); };
  auto take = [](future<int> x) -> asio::awaitable<void> {
    static_cast<void>(co_await std::move(x));
  };
  task a(io, get(future<int>()));
  task b(io, take(future<int>()));
  settle(io);
  CHECK(a.what().find("empty") != std::string::npos);
  CHECK(b.what().find("empty") != std::string::npos);
}

TEST_CASE("future: a result may be move-only") {
  asio::io_context io;
  auto work = []() -> asio::awaitable<std::unique_ptr<int>> { co_return std::make_unique<int>(9); };
  int value = 0;
  auto use = [&](future<std::unique_ptr<int>> f) -> asio::awaitable<void> {
    value = *co_await std::move(f);
  };
  task t(io, use(start_on(io.get_executor(), work())));
  settle(io);
  CHECK(value == 9);
}

TEST_CASE("future: a waiter goes down with its io_context") {
  auto alive = std::make_shared<int>(0);
  {
    asio::io_context io;
    const auto e = make_intrusive<event>();
    auto use = [](intrusive_ptr<event> what, std::shared_ptr<int> held) -> asio::awaitable<void> {
      static_cast<void>(held);
      auto f = start_on(co_await asio::this_coro::executor, after(what, 1));
      co_await asio::post(asio::use_awaitable);
      throw std::runtime_error("drops the future");
    };
    task t(io, use(e, alive));
    io.run_one();
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("future: work that is stopped before it began fails, whoever waits hears it") {
  asio::io_context io;
  bool begun = false;
  auto work = [](bool& flag) -> asio::awaitable<int> {
    flag = true;
    co_return 1;
  };
  future<int> f;
  asio::post(io, [&f] { f.request_stop(); });
  f = start_on(io.get_executor(), work(begun));  // begins in the same turn, behind that
  auto use = [](const future<int>& x) -> asio::awaitable<void> {
    static_cast<void>(co_await x.copy());
  };
  task t(io, use(f));
  settle(io);
  CHECK_FALSE(begun);
  CHECK(f.ready());
  CHECK(t.ended());
  CHECK(t.failed());
}

TEST_CASE("future: work that goes with its io_context fails elsewhere") {
  asio::io_context io;
  future<int> waits;
  future<int> not_begun;
  {
    asio::io_context other;
    waits = start_on(other.get_executor(), after(make_intrusive<event>(), 1));
    settle(other);
    not_begun = start_on(other.get_executor(), after(make_intrusive<event>(), 1));
  }
  auto use = [](future<int> x) -> asio::awaitable<void> {
    static_cast<void>(co_await std::move(x));
  };
  waits.request_stop();  // touches no io_context
  task a(io, use(std::move(waits)));
  task b(io, use(std::move(not_begun)));
  settle(io);
  CHECK(a.what() == "cancelled: the work was dropped before it ended");
  CHECK(b.what() == "cancelled: the work was dropped before it ended");
}

}  // namespace core_future
