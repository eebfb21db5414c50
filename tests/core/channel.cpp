// SPDX-License-Identifier: BSL-1.0
#include <weft/core/channel.hpp>
#include <weft/core/error.hpp>

#include <asio/this_coro.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <core/loop.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace core_channel {

using weft::channel;
using weft::testing::finish;
using weft::testing::settle;
using weft::testing::task;

asio::awaitable<void> send_all(channel<int> to, std::vector<int> values) {
  for (int v : values) co_await to.send(v);
}
asio::awaitable<void> receive_all(channel<int> from, std::vector<int>& out) {
  while (auto v = co_await from.receive()) out.push_back(*v);  // bounded: until it is closed
}
asio::awaitable<void> receive_one(channel<int> from, std::optional<int>& out) {
  out = co_await from.receive();
}

TEST_CASE("channel: values arrive in the order in which they were sent") {
  asio::io_context io;
  channel<int> c(2);
  std::vector<int> got;
  task sender(io, send_all(c, {1, 2, 3, 4, 5}));
  task receiver(io, receive_all(c, got));
  settle(io);
  CHECK(sender.ended());
  CHECK(got == std::vector<int>{1, 2, 3, 4, 5});
  CHECK_FALSE(receiver.ended());
  c.close();
  settle(io);
  CHECK(receiver.ended());
  CHECK_FALSE(receiver.failed());
}

TEST_CASE("channel: who sends more than it holds waits for room") {
  asio::io_context io;
  channel<int> c(2);
  task sender(io, send_all(c, {1, 2, 3, 4}));
  settle(io);
  CHECK_FALSE(sender.ended());
  CHECK(c.size() == 2);
  CHECK_FALSE(c.try_send(9));
  CHECK(c.try_receive() == 1);
  CHECK(c.size() == 2);  // the next one moved up at once
  CHECK_FALSE(c.try_send(9));
  settle(io);
  CHECK_FALSE(sender.ended());
  CHECK(c.try_receive() == 2);
  settle(io);
  CHECK(sender.ended());
  CHECK(c.try_receive() == 3);
  CHECK(c.try_receive() == 4);
  CHECK_FALSE(c.try_receive());
}

TEST_CASE("channel: those who wait are served in turn, each by one value") {
  asio::io_context io;
  channel<int> c(1);
  std::optional<int> a, b;
  task first(io, receive_one(c, a));
  task second(io, receive_one(c, b));
  settle(io);
  CHECK(c.try_send(1));
  CHECK_FALSE(c.try_receive());  // it is the first one's, though that has not run yet
  CHECK(c.size() == 0);
  settle(io);
  CHECK(a == 1);
  CHECK_FALSE(second.ended());
  CHECK(c.try_send(2));
  settle(io);
  CHECK(b == 2);
}

TEST_CASE("channel: what it holds is received after it was closed, nothing is sent") {
  asio::io_context io;
  channel<int> c(2);
  CHECK(c.try_send(1));
  CHECK(c.try_send(2));
  task waits(io, c.send(3));
  settle(io);
  c.close();
  c.close();
  CHECK(c.is_closed());
  settle(io);
  CHECK(waits.what().find("the channel is closed") != std::string::npos);
  task late(io, c.send(4));
  settle(io);
  CHECK(late.failed());
  CHECK_FALSE(c.try_send(5));
  std::vector<int> got;
  task receiver(io, receive_all(c, got));
  settle(io);
  CHECK(receiver.ended());
  CHECK(got == std::vector<int>{1, 2});
}

TEST_CASE("channel: a wait that is cancelled has taken and sent nothing") {
  asio::io_context io;
  channel<int> c(1);
  std::optional<int> a, b;
  task first(io, receive_one(c, a));
  task second(io, receive_one(c, b));
  settle(io);
  first.cancel();
  settle(io);
  CHECK(first.failed());
  CHECK(c.try_send(1));
  settle(io);
  CHECK_FALSE(a);
  CHECK(b == 1);

  CHECK(c.try_send(2));
  task sends(io, c.send(3));
  task sends_too(io, c.send(4));
  settle(io);
  sends.cancel();
  settle(io);
  CHECK(sends.failed());
  CHECK(c.try_receive() == 2);
  settle(io);
  CHECK(sends_too.ended());
  CHECK(c.try_receive() == 4);
  CHECK_FALSE(c.try_receive());
}

TEST_CASE("channel: a wait that was served is not cancelled any more, and its value is not lost") {
  asio::io_context io;
  channel<int> c(1);
  std::optional<int> got;
  task waits(io, receive_one(c, got));
  settle(io);
  CHECK(c.try_send(7));
  waits.cancel();
  settle(io);
  CHECK(got == 7);

  CHECK(c.try_send(8));
  task sends(io, c.send(9));
  settle(io);
  CHECK(c.try_receive() == 8);
  sends.cancel();
  settle(io);
  CHECK_FALSE(sends.failed());
  CHECK(c.try_receive() == 9);
}

TEST_CASE("channel: those who wait go with their io_context") {
  channel<std::shared_ptr<int>> c(1);
  auto value = std::make_shared<int>(3);
  {
    asio::io_context io;
    CHECK(c.try_send(value));
    task sends(io, c.send(value));
    settle(io);
    CHECK(value.use_count() == 3);
  }
  CHECK(value.use_count() == 2);
  CHECK(c.try_receive() == value);
  CHECK_FALSE(c.try_receive());
  {
    asio::io_context io;
    const auto receive = [](channel<std::shared_ptr<int>> from) -> asio::awaitable<void> {
      co_await from.receive();
    };
    task receives(io, receive(c));
    settle(io);
  }
  CHECK(c.try_send(value));
  CHECK(c.size() == 1);
}

TEST_CASE("channel: one without room is refused") {
  CHECK_THROWS_AS(channel<int>(0), weft::rpc_error);
  CHECK(channel<int>(3).capacity() == 3);
}

TEST_CASE("channel: senders and receivers on several threads lose and double nothing") {
  constexpr int each = 2000;
  channel<std::string> c(4);  // of more than one word
  std::atomic<int> received{0};
  std::atomic<long> sum{0};
  std::atomic<int> senders{2};
  const auto sends = [&](int from) -> asio::awaitable<void> {
    for (int i = 0; i < each; ++i)
      co_await c.send("a number that needs memory: " + std::to_string(from + i));
    if (senders.fetch_sub(1) == 1) c.close();
  };
  const auto receives = [&]() -> asio::awaitable<void> {
    while (auto v = co_await c.receive()) {  // bounded: until it is closed
      ++received;
      sum += std::stol(v->substr(v->rfind(' ')));
    }
  };
  const auto on_a_thread = [](asio::awaitable<void> work) {
    asio::io_context io;
    task t(io, std::move(work));
    finish(io);
    // A wait keeps no io_context alive: run again until it has ended.
    for (int round = 0; !t.ended() && round < 40'000; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      settle(io);
    }
    CHECK(t.ended());
    CHECK_FALSE(t.failed());
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { on_a_thread(sends(0)); });
  threads.emplace_back([&] { on_a_thread(sends(each)); });
  threads.emplace_back([&] { on_a_thread(receives()); });
  threads.emplace_back([&] { on_a_thread(receives()); });
  for (std::thread& t : threads) t.join();
  CHECK(received == 2 * each);
  CHECK(sum == long{2 * each - 1} * each);
}

}  // namespace core_channel
