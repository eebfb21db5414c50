// SPDX-License-Identifier: BSL-1.0
#include <weft/core/event.hpp>
#include <weft/core/gather.hpp>

#include <asio/this_coro.hpp>
#include <doctest/doctest.h>

#include <core/loop.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace core_gather {

using weft::event;
using weft::future;
using weft::gather;
using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::start_on;
using weft::testing::settle;
using weft::testing::task;

/// Ends when it is told to, with a number or an error.
struct pending {
  intrusive_ptr<event> end = make_intrusive<event>();
  std::string ending = "waits";

  asio::awaitable<int> number(int value) {
    co_await wait();
    co_return value;
  }
  asio::awaitable<std::unique_ptr<int>> pointer(int value) {
    co_await wait();
    co_return std::make_unique<int>(value);
  }
  asio::awaitable<int> failure(std::string text) {
    co_await wait();
    throw weft::rpc_error(weft::errc::peer_died, text);
  }
  asio::awaitable<int> other_failure() {
    co_await wait();
    throw std::runtime_error("the user's own");
  }
  asio::awaitable<void> nothing() { co_await wait(); }

 private:
  asio::awaitable<void> wait() {
    try {
      co_await event::wait(end);
      ending = "ended";
    } catch (const std::system_error&) {
      ending = "cancelled";
      throw;
    }
  }
};

template <class T>
std::vector<future<T>> both(future<T> a, future<T> b) {
  std::vector<future<T>> out;
  out.push_back(std::move(a));
  out.push_back(std::move(b));
  return out;
}

TEST_CASE("gather: results in the order of the arguments, whichever comes first") {
  asio::io_context io;
  pending a, b, c;
  bool checked = false;
  const auto body = [&]() -> asio::awaitable<void> {
    auto started = start_on(co_await asio::this_coro::executor, b.pointer(2));
    auto [x, y, z] = co_await gather(a.number(1), std::move(started), c.nothing());
    CHECK(x == 1);
    CHECK(*y == 2);
    CHECK(z == std::monostate());
    checked = true;
  };
  task t(io, body());
  settle(io);
  c.end->set();
  settle(io);
  b.end->set();
  settle(io);
  CHECK_FALSE(t.ended());
  a.end->set();
  settle(io);
  CHECK(checked);
}

TEST_CASE("gather: of any number, and of none") {
  asio::io_context io;
  std::vector<pending> all(5);
  std::vector<int> got;
  const auto body = [&]() -> asio::awaitable<void> {
    std::vector<asio::awaitable<int>> work;
    for (int i = 0; i < 5; ++i) work.push_back(all[static_cast<std::size_t>(i)].number(i));
    got = co_await gather(std::move(work));
    CHECK((co_await gather(std::vector<future<int>>())).empty());
  };
  task t(io, body());
  for (std::size_t i = 5; i-- > 0;) {
    settle(io);
    CHECK_FALSE(t.ended());
    all[i].end->set();
  }
  settle(io);
  CHECK(t.ended());
  CHECK(got == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("gather: the first error cancels the others and is thrown") {
  asio::io_context io;
  pending a, b, c;
  const auto body = [&]() -> asio::awaitable<void> {
    co_await gather(a.number(1), b.failure("no more"), c.number(3));
  };
  task t(io, body());
  settle(io);
  b.end->set();
  settle(io);
  CHECK(t.ended());
  CHECK(t.what().find("no more") != std::string::npos);
  CHECK(a.ending == "cancelled");
  CHECK(c.ending == "cancelled");
}

TEST_CASE("gather: who is cancelled cancels all") {
  asio::io_context io;
  pending a, b;
  const auto body = [&]() -> asio::awaitable<void> {
    auto started = start_on(co_await asio::this_coro::executor, b.number(2));
    co_await gather(a.number(1), std::move(started));
  };
  task t(io, body());
  settle(io);
  t.cancel();
  settle(io);
  CHECK(t.failed());
  CHECK(a.ending == "cancelled");
  CHECK(b.ending == "cancelled");
}

TEST_CASE("gather: errors as values leave the others alone") {
  asio::io_context io;
  pending a, b, c;
  std::vector<weft::expected<int>> got;
  const auto body = [&]() -> asio::awaitable<void> {
    std::vector<asio::awaitable<int>> work;
    work.push_back(a.failure("gone"));
    work.push_back(b.number(2));
    work.push_back(c.other_failure());
    got = co_await gather(std::move(work), weft::as_expected);
  };
  task t(io, body());
  settle(io);
  a.end->set();
  c.end->set();
  settle(io);
  CHECK_FALSE(t.ended());
  b.end->set();
  settle(io);
  REQUIRE(got.size() == 3);
  CHECK(got[0].error() == weft::errc::peer_died);
  CHECK(got[1] == 2);
  CHECK(got[2].error() == weft::errc::remote_exception);
  CHECK(got[2].error().message().find("the user's own") != std::string::npos);
}

TEST_CASE("gather: errors as values of several kinds of work") {
  asio::io_context io;
  pending a, b, c, d;
  using results = std::tuple<weft::expected<int>, weft::expected<std::unique_ptr<int>>,
                             weft::expected<void>, weft::expected<int>>;
  std::optional<results> got;
  const auto body = [&]() -> asio::awaitable<void> {
    future<int> started = start_on(io.get_executor(), d.number(4));
    got = co_await gather(a.failure("gone"), b.pointer(2), c.nothing(), std::move(started),
                          weft::as_expected);
  };
  task t(io, body());
  settle(io);
  a.end->set();
  settle(io);
  CHECK_FALSE(t.ended());
  for (const pending* p : {&b, &c, &d}) p->end->set();
  settle(io);
  REQUIRE(got);
  CHECK(std::get<0>(*got).error() == weft::errc::peer_died);
  CHECK(**std::get<1>(*got) == 2);
  CHECK(std::get<2>(*got).has_value());
  CHECK(std::get<3>(*got) == 4);
  CHECK(b.ending == "ended");
}

TEST_CASE("as_completed: results in the order in which they come, errors among them") {
  asio::io_context io;
  pending a, b, c;
  std::vector<std::size_t> order;
  bool failed = false;
  const auto body = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    auto work = both(start_on(here, a.number(10)), start_on(here, b.failure("gone")));
    work.push_back(start_on(here, c.number(12)));
    work.emplace_back();  // an empty one
    auto arriving = weft::as_completed(std::move(work));
    CHECK(arriving.remaining() == 4);
    while (auto one = co_await arriving.next()) {  // bounded: by the four futures
      order.push_back(one->index);
      if (one->index == 1) failed = one->result.error() == weft::errc::peer_died;
      if (one->index == 2) CHECK(one->result == 12);
      if (one->index == 3) CHECK(one->result.error() == weft::errc::invalid_argument);
    }
    CHECK(arriving.remaining() == 0);
    CHECK_FALSE(co_await arriving.next());
  };
  task t(io, body());
  settle(io);
  for (pending* p : {&c, &b, &a}) {
    p->end->set();
    settle(io);
  }
  CHECK(t.ended());
  CHECK(t.what() == "");
  CHECK(order == std::vector<std::size_t>{3, 2, 1, 0});
  CHECK(failed);
}

TEST_CASE(
    "as_completed: what is left when it goes is cancelled, a cancelled wait leaves it alone") {
  asio::io_context io;
  pending a, b;
  std::optional<weft::completions<int>> arriving;
  const auto begin = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    arriving.emplace(both(start_on(here, a.number(1)), start_on(here, b.number(2))));
    co_await arriving->next();
  };
  task t(io, begin());
  settle(io);
  t.cancel();
  settle(io);
  CHECK(t.failed());
  CHECK(a.ending == "waits");
  a.end->set();
  settle(io);
  std::size_t index = 9;
  const auto again = [&]() -> asio::awaitable<void> { index = (co_await arriving->next())->index; };
  task u(io, again());
  settle(io);
  CHECK(index == 0);
  arriving.reset();
  settle(io);
  CHECK(b.ending == "cancelled");
}

TEST_CASE("first: so many as are wanted, the others are cancelled") {
  asio::io_context io;
  pending a, b, c;
  std::vector<weft::completion<int>> got;
  const auto body = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    auto work = both(start_on(here, a.number(1)), start_on(here, b.failure("gone")));
    work.push_back(start_on(here, c.number(3)));
    got = co_await weft::first(1, std::move(work));
  };
  task t(io, body());
  settle(io);
  b.end->set();
  settle(io);
  CHECK_FALSE(t.ended());
  c.end->set();
  settle(io);
  CHECK(t.ended());
  REQUIRE(got.size() == 1);
  CHECK(got[0].index == 2);
  CHECK(got[0].result == 3);
  CHECK(a.ending == "cancelled");
}

TEST_CASE("first: of coroutines, which it starts") {
  asio::io_context io;
  pending a, b;
  std::vector<weft::completion<int>> got;
  const auto body = [&]() -> asio::awaitable<void> {
    std::vector<asio::awaitable<int>> work;
    work.push_back(a.number(1));
    work.push_back(b.number(2));
    got = co_await weft::first(1, std::move(work));
  };
  task t(io, body());
  settle(io);
  b.end->set();
  settle(io);
  CHECK(t.ended());
  REQUIRE(got.size() == 1);
  CHECK(got[0].index == 1);
  CHECK(a.ending == "cancelled");
}

TEST_CASE("first: throws once too many have failed, and says why") {
  asio::io_context io;
  pending a, b, c;
  const auto body = [&]() -> asio::awaitable<void> {
    const auto here = co_await asio::this_coro::executor;
    auto work = both(start_on(here, a.failure("one")), start_on(here, b.failure("two")));
    work.push_back(start_on(here, c.number(3)));
    co_await weft::first(2, std::move(work));
  };
  task t(io, body());
  settle(io);
  a.end->set();
  settle(io);
  CHECK_FALSE(t.ended());
  b.end->set();
  settle(io);
  CHECK(t.ended());
  CHECK(t.what().find("one") != std::string::npos);
  CHECK(t.what().find("two") != std::string::npos);
  CHECK(c.ending == "cancelled");

  const auto too_few = [&]() -> asio::awaitable<void> {
    co_await weft::first(1, std::vector<future<int>>());
  };
  task u(io, too_few());
  settle(io);
  CHECK(u.what().find("first() wants 1 results, but has only 0 futures") != std::string::npos);
}

}  // namespace core_gather
