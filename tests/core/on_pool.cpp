// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/core/real_clock.hpp>

#include <doctest/doctest.h>

#include <core/context_owner.hpp>
#include <core/loop.hpp>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace core_on_pool {

using weft::intrusive_ptr;
using weft::on_pool;
using weft::testing::settle;
using weft::testing::task;

/// A worker whose pool runs one job when the test says so.
class pool_of_a_test final : public weft::testing::owner_in_a_test {
 public:
  using owner_in_a_test::owner_in_a_test;
  [[nodiscard]] weft::clock& time_here() const noexcept override { return time_; }
  void submit(intrusive_ptr<weft::detail::pool_job> job) override {
    jobs.push_back(std::move(job));
  }
  void run_one() {
    const auto job = std::move(jobs.front());
    jobs.pop_front();
    job->run();
  }
  std::deque<intrusive_ptr<weft::detail::pool_job>> jobs;

 private:
  mutable weft::real_clock time_;
};

TEST_CASE("on_pool: the result comes back, and what the function was given is gone by then") {
  asio::io_context io;
  pool_of_a_test pool(io);
  auto given = std::make_shared<int>(3);
  int got = 0;
  const auto body = [&]() -> asio::awaitable<void> {
    got = co_await on_pool([](std::shared_ptr<int> x, int y) { return *x * y; }, given, 5);
    CHECK(given.use_count() == 1);
    co_await on_pool([&] { got += 1; });
  };
  task t(io, body());
  settle(io);
  CHECK(got == 0);
  CHECK(given.use_count() == 2);
  pool.run_one();
  settle(io);
  CHECK(got == 15);
  pool.run_one();
  settle(io);
  CHECK(t.ended());
  CHECK(got == 16);
}

TEST_CASE("on_pool: what the function throws is thrown where it is awaited") {
  asio::io_context io;
  pool_of_a_test pool(io);
  const auto body = []() -> asio::awaitable<void> {
    co_await on_pool([] { throw std::runtime_error("of the function"); });
  };
  task t(io, body());
  settle(io);
  pool.run_one();
  settle(io);
  CHECK(t.what() == "of the function");
}

TEST_CASE("on_pool: the function runs in its caller's scope") {
  asio::io_context io;
  pool_of_a_test pool(io);
  auto scope = weft::make_intrusive<weft::call_scope>();
  scope->trace = 42;
  std::uint64_t seen = 0;
  const auto body = [&]() -> asio::awaitable<void> {
    seen = co_await on_pool([] { return weft::this_scope()->trace; });
  };
  task t(weft::scoped(io, scope), body());
  settle(io);
  pool.run_one();
  CHECK_FALSE(weft::this_scope());
  settle(io);
  CHECK(seen == 42);
}

TEST_CASE("on_pool: a cancelled one does not begin, or goes on without anybody") {
  asio::io_context io;
  pool_of_a_test pool(io);
  int ran = 0;
  const auto body = [&]() -> asio::awaitable<void> { co_await on_pool([&ran] { ++ran; }); };
  task before(io, body());
  settle(io);
  before.cancel();
  settle(io);
  CHECK(before.failed());
  pool.run_one();
  CHECK(ran == 0);

  std::optional<task> during;
  const auto cancels = [&]() -> asio::awaitable<void> {
    co_await on_pool([&] {
      during->cancel();
      settle(io);
      ++ran;
    });
  };
  during.emplace(io, cancels());
  settle(io);
  pool.run_one();
  CHECK(during->failed());
  CHECK(ran == 1);
}

TEST_CASE("on_pool: a pool that ends before the function began says so") {
  asio::io_context io;
  pool_of_a_test pool(io);
  const auto body = []() -> asio::awaitable<void> { co_await on_pool([] {}); };
  task t(io, body());
  settle(io);
  pool.jobs.clear();
  settle(io);
  CHECK(t.what().find("the compute pool ended") != std::string::npos);
}

TEST_CASE("on_pool: a coroutine of nobody's has no pool") {
  asio::io_context io;
  const auto body = []() -> asio::awaitable<void> { co_await on_pool([] {}); };
  task t(io, body());
  settle(io);
  CHECK(t.what().find("there is no compute pool here") != std::string::npos);
}

}  // namespace core_on_pool
