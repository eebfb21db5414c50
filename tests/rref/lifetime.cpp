// SPDX-License-Identifier: BSL-1.0
// How long an object lives: to the last reference, wherever that is, and is destroyed once.
#include "objects.hpp"
#include <weft/core/task_group.hpp>
#include <weft/rref/rref.hpp>

#include <optional>
#include <thread>
#include <vector>

namespace rref_tests {

/// A place at a worker where references stay between calls.
struct shelf {
  std::vector<rref<probe>> kept;
  asio::awaitable<void> keep(rref<probe> p) {
    kept.push_back(std::move(p));
    co_return;
  }
  asio::awaitable<int> use() { co_return co_await kept.front().call<&probe::add>(1); }
  asio::awaitable<void> clear() {
    kept.clear();
    co_return;
  }
};
/// An object that can hold a reference to itself.
struct ring : probe {
  using probe::probe;
  rref<ring> next;
  asio::awaitable<void> close(rref<ring> r) {
    next = std::move(r);
    co_return;
  }
  asio::awaitable<int> around() { co_return co_await next.call<&ring::value>(); }
  asio::awaitable<void> open() {
    next = {};
    co_return;
  }
};
asio::awaitable<void> pass_on(worker& me, rref<probe> p, std::vector<int> route, rref<shelf> last) {
  if (route.empty()) {
    co_await last.call<&shelf::keep>(std::move(p));
    co_return;
  }
  const auto next = me.peer(route.back());
  route.pop_back();
  co_await next.call<&pass_on>(std::move(p), route, last);
}
int throw_it(rref<probe>) { throw std::runtime_error("refused"); }
int wait_at_the_door() {
  door().pass();
  return 0;
}
asio::awaitable<rref<probe>> return_late(worker& me) {
  auto p = me.share(probe(1));
  co_await me.peer(me.rank()).call<&wait_at_the_door>();
  co_return p;
}

namespace {

asio::awaitable<void> check_destroyed(int count) {
  CHECK(co_await eventually([=] { return record::of_all().destroyed >= count; }));
  CHECK(record::of_all().destroyed == count);
  CHECK(record::of_all().made == count);
  CHECK(record::of_all().elsewhere == 0);
}

TEST_CASE("rref: an object is destroyed once, on its owner's thread, after the last reference") {
  record::of_all().reset();
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    {
      auto theirs = me.peer(1).make<probe>(1);
      auto mine = me.share(probe(2));
      co_await theirs.call<&probe::stay>();
      co_await mine.call<&probe::stay>();
      const auto copy = theirs;
      const std::vector<rref<probe>> more(10, copy);
      theirs = {};
      CHECK(co_await copy.call<&probe::value>() == 1);
      CHECK(all.rrefs(0).counters().imports == 1);  // copies of one worker are one
      CHECK(all.rrefs(1).counters().holders == 1);
      CHECK(record::of_all().destroyed == 0);
      // The last one of an own object goes on a thread of somebody else.
      std::thread([m = std::move(mine)]() mutable { m = {}; }).join();
    }
    co_await check_nothing_is_left(all);
    co_await check_destroyed(2);
  });
}

TEST_CASE("rref: whoever drops the object last, it is destroyed on its owner's thread") {
  workers_everywhere(1, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    auto p = me.share(probe(1));
    co_await p.call<&probe::stay>();
    auto held = p.local();
    p = {};
    co_await check_nothing_is_left(all);
    CHECK(record::of_all().destroyed == 0);
    std::thread([held = std::move(held)]() mutable { held.reset(); }).join();
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: another thread drops references while their worker ends") {
  for (const over how : {over::inproc, over::tcp}) {
    record::of_all().reset();
    std::vector<rref<probe>> kept;
    std::thread dropping;
    {
      workers all(2, how, with_io_threads(1));
      const auto ends = all.run([&](workers&, worker& me) -> asio::awaitable<void> {
        for (int i = 0; i < 1000; ++i) {
          kept.push_back(me.share(probe(i)));
          kept.push_back(me.peer(1).make<probe>(i));
        }
        CHECK(co_await kept.back().call<&probe::value>() == 999);
      });
      CHECK_FALSE(ends[0]);
      CHECK_FALSE(ends[1]);
      dropping = std::thread([&] { kept.clear(); });
    }
    dropping.join();
    CHECK(record::of_all().made == 2000);
    CHECK(record::of_all().destroyed == 2000);
  }
}

TEST_CASE("rref: whoever holds it last keeps the object, over several hands") {
  workers_everywhere(4, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    auto last = me.peer(3).make<shelf>();
    co_await me.peer(2).call<&pass_on>(me.peer(1).make<probe>(1), std::vector{0, 3, 2, 1, 3}, last);
    CHECK(co_await eventually([&] { return all.rrefs(2).idle(); }));
    CHECK(record::of_all().destroyed == 0);
    CHECK(co_await last.call<&shelf::use>() == 2);
    co_await last.call<&shelf::clear>();
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: many references pass each other without loss or leak") {
  workers_everywhere(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    constexpr int count = 40;
    auto last = me.peer(2).make<shelf>();
    auto one = me.peer(1).make<probe>(0);
    co_await weft::with_task_group([&](weft::task_group& group) -> asio::awaitable<void> {
      for (int i = 0; i < count; ++i) {
        group.spawn(me.peer(i % 3).call<&pass_on>(one, std::vector{i % 2, 2 - i % 3}, last));
        group.spawn(me.peer(i % 3).call<&pass_on>(me.peer(i % 2).make<probe>(i),
                                                  std::vector{2 - i % 2, i % 3}, last));
      }
      co_return;
    });
    one = {};
    CHECK(record::of_all().destroyed == 0);
    co_await last.call<&shelf::clear>();
    last = {};
    co_await check_nothing_is_left(all);
    co_await check_destroyed(count + 1);
  });
}

TEST_CASE("rref: a reference that goes to its own worker is the same reference") {
  run_workers(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    auto s = me.peer(1).make<shelf>();
    auto mine = me.share(probe(1));
    co_await s.call<&shelf::keep>(mine);
    CHECK(co_await s.call<&shelf::use>() == 2);
    // To itself, through a call to oneself.
    co_await me.peer(0).call<&pass_on>(mine, std::vector{0, 0}, s);
    co_await s.call<&shelf::clear>();
    CHECK(co_await eventually([&] { return all.rrefs(1).counters().imports == 0; }));
    CHECK(mine.local()->value() == 2);
    mine = {};
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: an object that holds a reference to itself lives until it lets go of it") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      record::of_all().reset();
      auto r = me.peer(rank).make<ring>(1);
      co_await r.call<&ring::close>(r);
      CHECK(co_await r.call<&ring::around>() == 1);
      co_await r.call<&ring::open>();
      r = {};
      co_await check_destroyed(1);
    }
  });
}

TEST_CASE("rref: an object that still holds a reference to itself goes with its worker") {
  record::of_all().reset();
  {
    workers all(2, over::tcp, with_io_threads(1));
    const auto ends = all.run([&](workers& w, worker& me) -> asio::awaitable<void> {
      for (const int rank : {1, 0}) {
        auto r = me.peer(rank).make<ring>(1);
        co_await r.call<&ring::close>(r);
      }
      // Nobody else holds it, and nobody can: a cycle is not collected.
      CHECK(co_await eventually([&w] { return w.rrefs(1).counters().holders == 0; }));
      CHECK(w.rrefs(1).counters().owned == 1);
      CHECK(w.rrefs(0).counters().owned == 1);
      CHECK(record::of_all().destroyed == 0);
    });
    CHECK_FALSE(ends[0]);
    CHECK_FALSE(ends[1]);
  }
  CHECK(record::of_all().destroyed == 2);
}

TEST_CASE("rref: a call in flight keeps its object") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    door().close();
    auto p = me.peer(1).make<probe>(7);
    co_await p.call<&probe::stay>();
    auto called = p.start<&probe::slow>();
    p = {};
    CHECK(co_await eventually([] { return door().arrived() == 1; }));
    CHECK(record::of_all().destroyed == 0);
    door().open();
    CHECK(co_await std::move(called) == 7);
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: a reference that is dropped before its object is made") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    door().close();
    auto p = me.peer(1).make<slow_probe>(7);
    CHECK(co_await eventually([] { return door().arrived() == 1; }));
    p = {};
    door().open();
    co_await check_nothing_is_left(all);
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: references in calls that fail are given back") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    for (const int rank : {0, 1, 2}) {
      auto p = me.peer(1).make<probe>(1);
      const auto e = co_await me.peer(rank).call<&throw_it>(p, weft::as_expected);
      CHECK(e.error() == weft::errc::remote_exception);
      CHECK(co_await p.call<&probe::value>() == 1);
    }
    co_await check_nothing_is_left(all);
    co_await check_destroyed(3);
  });
}

TEST_CASE("rref: a reference in a reply that nobody waits for is given back") {
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    record::of_all().reset();
    door().close();
    {
      auto unwanted = me.peer(1).start<&return_late>();
      CHECK(co_await eventually([] { return door().arrived() == 1; }));
    }  // cancelled: the reply may be under way or never come
    door().open();
    co_await check_nothing_is_left(all);
    co_await check_destroyed(1);
  });
}

TEST_CASE("rref: references may outlive their workers") {
  std::optional<rref<probe>> mine, theirs;
  record::of_all().reset();
  {
    workers all(2, over::inproc, with_io_threads(0));
    static_cast<void>(all.run([&](workers&, worker& me) -> asio::awaitable<void> {
      mine = me.share(probe(1));
      theirs = me.peer(1).make<probe>(2);
      CHECK(co_await theirs->call<&probe::value>() == 2);
    }));
  }
  CHECK(record::of_all().destroyed == 2);  // with their owners
  mine.reset();
  theirs.reset();
}

}  // namespace
}  // namespace rref_tests
