// SPDX-License-Identifier: BSL-1.0
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <core/loop.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace transport_pipe_waiter {

using weft::intrusive_ptr;
using weft::make_intrusive;
using weft::detail::pipe_waiter;
using weft::testing::settle;
using weft::testing::task;

asio::awaitable<void> wait_in(intrusive_ptr<pipe_waiter> place, int& passed) {
  co_await place->wait();
  ++passed;
}

TEST_CASE("pipe_waiter: a wake ends one wait, now or the next; two wakes before it are one") {
  asio::io_context io;
  const auto place = make_intrusive<pipe_waiter>(io);
  int passed = 0;
  {
    task waits(io, wait_in(place, passed));
    settle(io);
    CHECK(passed == 0);
    place->wake();
    CHECK(passed == 0);  // the io_context resumes it, not the one who wakes
    settle(io);
    CHECK(passed == 1);
  }
  place->wake();
  place->wake();
  task at_once(io, wait_in(place, passed));
  settle(io);
  CHECK(passed == 2);
  task waits(io, wait_in(place, passed));
  settle(io);
  CHECK(passed == 2);
  place->wake();
  settle(io);
  CHECK(passed == 3);
}

TEST_CASE("pipe_waiter: a cancelled wait throws cancelled, and the next one waits for a wake") {
  asio::io_context io;
  const auto place = make_intrusive<pipe_waiter>(io);
  int passed = 0;
  task first(io, wait_in(place, passed));
  settle(io);
  first.cancel();
  settle(io);
  CHECK(first.failed());
  task second(io, wait_in(place, passed));
  settle(io);
  CHECK_FALSE(second.ended());
  first.cancel();  // its slot is nobody's now
  settle(io);
  CHECK_FALSE(second.ended());
  place->wake();
  settle(io);
  CHECK(second.ended());
  CHECK_FALSE(second.failed());
  CHECK(passed == 1);
}

TEST_CASE("pipe_waiter: after its io_context nothing happens, and what waited is gone") {
  const auto alive = std::make_shared<int>(0);
  intrusive_ptr<pipe_waiter> place;
  int passed = 0;
  {
    asio::io_context io;
    place = make_intrusive<pipe_waiter>(io);
    auto wait = [](intrusive_ptr<pipe_waiter> where, int& n,
                   std::shared_ptr<int>) -> asio::awaitable<void> {
      co_await wait_in(std::move(where), n);
    };
    asio::co_spawn(io, wait(place, passed, alive), [](std::exception_ptr) {});
    settle(io);
    CHECK(alive.use_count() == 2);
    CHECK(place->use_count() > 1);
  }
  CHECK(alive.use_count() == 1);
  CHECK(place->use_count() == 1);
  place->wake();
  CHECK(passed == 0);
}

TEST_CASE("pipe_waiter: none of another thread's wakes is lost") {
  asio::io_context io;
  const auto place = make_intrusive<pipe_waiter>(io);
  constexpr int rounds = 2000;
  std::atomic<int> said{0};
  int heard = 0;
  auto listen = [](intrusive_ptr<pipe_waiter> where, std::atomic<int>& number,
                   int& seen) -> asio::awaitable<void> {
    while (seen < rounds) {  // bounded: by the test's end, which drops it
      co_await where->wait();
      seen = number.load();
    }
  };
  asio::co_spawn(io, listen(place, said, heard), [](std::exception_ptr) {});
  auto work = std::make_optional(asio::make_work_guard(io));
  std::thread other([&] {
    for (int i = 1; i <= rounds; ++i) {
      said = i;
      place->wake();
      if (i % 7 == 0) std::this_thread::yield();
    }
  });
  while (heard < rounds) {  // bounded: a wake that were lost leaves nothing to run, for ever
    if (io.run_one_for(std::chrono::seconds(30)) == 0) break;
  }
  other.join();
  work.reset();
  CHECK(heard == rounds);
}

TEST_CASE("pipe_waiter: woken on another thread while its io_context ends") {
  for (int round = 0; round < 500; ++round) {
    std::optional<asio::io_context> io(std::in_place);
    const auto place = make_intrusive<pipe_waiter>(*io);
    int passed = 0;
    asio::co_spawn(*io, wait_in(place, passed), [](std::exception_ptr) {});
    settle(*io);
    std::thread other([&] { place->wake(); });
    io.reset();
    other.join();
    REQUIRE(passed == 0);
    REQUIRE(place->use_count() == 1);
  }
}

}  // namespace transport_pipe_waiter
