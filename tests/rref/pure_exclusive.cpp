// SPDX-License-Identifier: BSL-1.0
// Objects whose functions run one at a time.
#include "pure.hpp"
#include <weft/core/sleep_for.hpp>
#include <weft/rref/exclusive.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rref_exclusive {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::exclusive;
using weft::rref;
using weft::worker;

gate& door() {
  static gate it;
  return it;
}

/// Sees whether two of its functions run at once.
class diary {
 public:
  explicit diary(std::string first) : lines_{std::move(first)} {}
  asio::awaitable<int> write_slowly(int line) {
    enter();
    co_await weft::sleep_for(1ms);
    lines_.push_back(std::to_string(line));
    leave();
    co_return static_cast<int>(lines_.size());
  }
  int write(int line) {
    enter();
    lines_.push_back(std::to_string(line));
    leave();
    return static_cast<int>(lines_.size());
  }
  int write_behind_the_door(int line) {
    door().pass();
    return write(line);
  }
  weft::immediate<int> size() const { return static_cast<int>(lines_.size()); }
  void tear() {
    enter();
    leave();
    throw std::runtime_error("torn");
  }
  asio::awaitable<int> ask_itself(rref<exclusive<diary>> me) {
    co_return co_await me.call<&diary::size>(weft::within(20ms));
  }
  [[nodiscard]] std::string all() const {
    std::string out;
    for (const std::string& l : lines_) out += l + ' ';
    return out + std::to_string(at_once_.load());
  }

 private:
  void enter() {
    if (inside_++ != 0) ++at_once_;
  }
  void leave() { --inside_; }
  std::atomic<int> inside_{0}, at_once_{0};
  std::vector<std::string> lines_;
};
std::string read_name() { return "there"; }
int behind_the_door(int a) {
  door().pass();
  return a;
}
std::string read(const diary& d) { return d.all(); }

TEST_CASE("exclusive: functions run one at a time, in the order of their requests") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const auto d = me.peer(1).make<exclusive<diary>>("begin");
    std::vector<weft::future<int>> written;
    std::string expected = "begin ";
    CHECK(co_await d.call<&diary::size>() == 1);  // those that wait until it is made have no order
    for (int i = 0; i < 40; ++i) {
      written.push_back(i % 3 == 0 ? d.start<&diary::write_slowly>(i) : d.start<&diary::write>(i));
      expected += std::to_string(i) + ' ';
    }
    CHECK(co_await d.call<&diary::size>() == 41);
    for (std::size_t i = 0; i < written.size(); ++i) {
      CHECK(co_await std::move(written[i]) == static_cast<int>(i) + 2);
    }
    CHECK(co_await d.call<&read>() == expected + "0");
    CHECK(co_await d.remote<&read>().to_here() == expected + "0");
  });
}

TEST_CASE("exclusive: an error, a deadline, a caller that gives up: the next one has its turn") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    door().close();
    const auto d = me.peer(1).make<exclusive<diary>>("a");
    CHECK(co_await thrown_by(d.call<&diary::tear>()) == errc::remote_exception);
    weft::future<int> holds = d.start<&diary::write_behind_the_door>(1);
    CHECK(co_await eventually([] { return door().arrived() == 1; }));
    const weft::error late = co_await thrown_by(d.call<&diary::write>(2, weft::within(30ms)));
    CHECK(late == errc::timed_out);
    {
      const weft::future<int> given_up = d.start<&diary::write_slowly>(3);
    }
    weft::future<int> behind = d.start<&diary::write>(4);
    CHECK(co_await me.peer(1).call<&read_name>() == "there");  // no thread of it waits
    CHECK_FALSE(behind.ready());
    door().open();
    CHECK(co_await std::move(holds) == 2);
    CHECK(co_await std::move(behind) == 3);
    CHECK(co_await d.call<&read>() == "a 1 4 0");
  });
}

TEST_CASE("exclusive: a function that calls its own object waits for itself, to its deadline") {
  run_pure(2, over::inproc, 0u, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const auto d = me.peer(1).make<exclusive<diary>>("a");
    const weft::error e = co_await thrown_by(d.call<&diary::ask_itself>(d));
    CHECK(e == errc::remote_exception);
    CHECK(e.cause() == errc::timed_out);
    CHECK(co_await d.call<&diary::size>() == 1);
  });
}

TEST_CASE("exclusive: arguments that are references are there before its turn comes") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    door().close();
    const auto d = me.peer(1).make<exclusive<diary>>("a");
    const rref<int> late = me.peer(2).remote<&behind_the_door>(5);
    weft::future<int> second = d.start<&diary::write>(late);
    CHECK(co_await d.call<&diary::write>(1) == 2);  // nobody holds the object meanwhile
    door().open();
    CHECK(co_await std::move(second) == 3);
    CHECK(co_await d.call<&read>() == "a 1 5 0");
  });
}

struct animal {
  int eaten = 0;
  int feed(int n) { return eaten += n; }
};
struct dog : animal {};
struct cat : animal {};

TEST_CASE("exclusive: a function of a base is one for each class") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const auto d = me.peer(1).make<exclusive<dog>>();
    const auto c = me.peer(1).make<exclusive<cat>>();
    CHECK(co_await d.call<&animal::feed>(2) == 2);
    CHECK(co_await c.call<&animal::feed>(3) == 3);
    CHECK(co_await d.call<&animal::feed>(2) == 4);
  });
}

asio::awaitable<void> come_behind() { co_return; }

TEST_CASE("exclusive: who has waited beyond its deadline does nothing") {
  run_pure(2, over::inproc, 0u, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    door().close();
    const auto d = me.peer(1).make<exclusive<dog>>();
    CHECK(co_await d.call<&animal::feed>(0) == 0);
    // Both threads of the pool are taken, and the object is free.
    weft::future<int> one = me.peer(1).start<&behind_the_door>(1);
    weft::future<int> two = me.peer(1).start<&behind_the_door>(2);
    CHECK(co_await eventually([] { return door().arrived() == 2; }));
    const auto e = co_await thrown_by(d.call<&animal::feed>(2, weft::within(20ms)));
    CHECK(e == errc::timed_out);
    {
      const weft::future<int> given_up = d.start<&animal::feed>(4);
    }
    co_await me.peer(1).call<&come_behind>();  // the callee has heard that it is cancelled
    door().open();
    co_await std::move(one);
    co_await std::move(two);
    CHECK(co_await d.call<&animal::feed>(8) == 8);
  });
}

}  // namespace rref_exclusive
