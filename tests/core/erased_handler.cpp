// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/erased_handler.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/bind_executor.hpp>
#include <asio/execution/blocking.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/require.hpp>
#include <asio/strand.hpp>
#include <doctest/doctest.h>

#include <array>
#include <core/loop.hpp>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace core_erased_handler {

using weft::call_scope;
using weft::make_intrusive;
using weft::detail::erased_handler;
using waiting = erased_handler<void()>;
using weft::testing::settle;

TEST_CASE("erased_handler: what it holds is called once, and the place is free while it runs") {
  asio::io_context io;
  waiting place;
  CHECK_FALSE(place);
  int first = 0;
  int second = 0;
  place.put(asio::bind_executor(io, [&] {
    ++first;
    CHECK_FALSE(place);
    place.put(asio::bind_executor(io, [&] { ++second; }));
  }));
  CHECK(place);
  asio::post(io, [&] {
    place.resume(io);
    CHECK(first == 1);  // at once
    CHECK(place);
    place.resume(io);
  });
  settle(io);
  CHECK(first == 1);
  CHECK(second == 1);
  CHECK_FALSE(place);
}

TEST_CASE("erased_handler: what is dropped, or left in it, is destroyed and not called") {
  const auto alive = std::make_shared<int>(0);
  bool called = false;
  {
    waiting place;
    place.put([alive, &called] { called = true; });
    CHECK(alive.use_count() == 2);
    place.drop();
    CHECK(alive.use_count() == 1);
    CHECK_FALSE(place);
    place.drop();
    place.put([alive, &called] { called = true; });
  }
  CHECK(alive.use_count() == 1);
  CHECK_FALSE(called);
}

TEST_CASE("erased_handler: the handler may be the last to hold the place, dropped or called") {
  asio::io_context io;
  for (const bool call : {false, true}) {
    auto place = std::make_shared<waiting>();
    const std::weak_ptr<waiting> seen = place;
    waiting& there = *place;
    there.put(asio::bind_executor(io, [holds = std::move(place)]() mutable { holds = nullptr; }));
    CHECK_FALSE(seen.expired());
    if (call) {
      asio::post(io, [&] { there.resume(io); });
      settle(io);
    } else {
      there.drop();
    }
    CHECK(seen.expired());
  }
}

TEST_CASE("erased_handler: a handler is called inside the scope of its executor") {
  asio::io_context io;
  waiting place;
  const auto scope = make_intrusive<call_scope>();
  const call_scope* within = nullptr;
  place.put(
      asio::bind_executor(weft::scoped(io, scope), [&] { within = weft::this_scope().get(); }));
  asio::post(io, [&] { place.resume(io); });
  settle(io);
  CHECK(within == scope.get());
  CHECK_FALSE(weft::this_scope());
}

TEST_CASE("erased_handler: a handler of another executor is called there, not here") {
  asio::io_context here;
  asio::io_context there;
  waiting place;
  int called = 0;
  SUBCASE("another io_context") {
    place.put(asio::bind_executor(there, [&] { ++called; }));
    asio::post(here, [&] { place.resume(here); });
    settle(here);
    CHECK(called == 0);
    settle(there);
  }
  SUBCASE("a strand") {
    auto strand = asio::make_strand(here);
    place.put(asio::bind_executor(strand, [&] {
      CHECK(strand.running_in_this_thread());
      ++called;
    }));
    asio::post(here, [&] { place.resume(here); });
    settle(here);
  }
  CHECK(called == 1);
}

TEST_CASE("erased_handler: what it is called with arrives, at once and by a post") {
  asio::io_context io;
  erased_handler<void(std::unique_ptr<int>, int)> place;
  int sum = 0;
  const auto add = [&](std::unique_ptr<int> a, int b) { sum += *a + b; };
  asio::post(io, [&] {
    place.put(asio::bind_executor(io, add));
    place.resume(io, std::make_unique<int>(1), 2);
    CHECK(sum == 3);
    place.put(asio::bind_executor(io, add));
    place.post(std::make_unique<int>(10), 20);
    CHECK_FALSE(place);
    CHECK(sum == 3);  // not within
  });
  settle(io);
  CHECK(sum == 33);
}

TEST_CASE(
    "erased_handler: a handler that it has no room for is kept, called and destroyed as well") {
  asio::io_context io;
  const auto alive = std::make_shared<int>(0);
  struct large {
    asio::io_context& io;
    std::shared_ptr<int> held;
    int& called;
    char room[500] = {};
    using executor_type = asio::io_context::executor_type;
    [[nodiscard]] executor_type get_executor() const noexcept { return io.get_executor(); }
    void operator()() const { ++called; }
  };
  static_assert(!waiting::has_room_for<large>);
  int called = 0;
  waiting place;
  for (const int way : {0, 1, 2}) {
    CAPTURE(way);
    called = 0;
    place.put(large{io, alive, called});
    CHECK(alive.use_count() == 2);
    if (way == 0) place.drop();
    if (way == 1) place.post();
    if (way == 2) asio::post(io, [&] { place.resume(io); });
    settle(io);
    CHECK(called == (way == 0 ? 0 : 1));
    CHECK(alive.use_count() == 1);
    CHECK_FALSE(place);
  }
}

TEST_CASE("erased_handler: a handler of any alignment is where it has to be") {
  asio::io_context io;
  struct alignas(256) wide {
    asio::io_context& io;
    bool& aligned;
    using executor_type = asio::io_context::executor_type;
    [[nodiscard]] executor_type get_executor() const noexcept { return io.get_executor(); }
    void operator()() const { aligned = reinterpret_cast<std::uintptr_t>(this) % 256 == 0; }
  };
  // Several at once, and blocks between them: not all are aligned by chance.
  std::array<waiting, 8> places;
  std::array<bool, 8> aligned{};
  std::vector<std::unique_ptr<char[]>> between;
  for (std::size_t i = 0; i < places.size(); ++i) {
    between.push_back(std::make_unique<char[]>(16 + 48 * i));
    places[i].put(wide{io, aligned[i]});
  }
  for (waiting& place : places) asio::post(io, [&place, &io] { place.resume(io); });
  settle(io);
  for (const bool a : aligned) CHECK(a);
}

TEST_CASE("erased_handler: an executor that never calls at once does not") {
  asio::io_context io;
  waiting place;
  int called = 0;
  const auto never = asio::require(io.get_executor(), asio::execution::blocking.never);
  const auto put = [&](const auto& executor) {
    place.put(asio::bind_executor(executor, [&] { ++called; }));
  };
  for (const int which : {0, 1, 2}) {
    CAPTURE(which);
    called = 0;
    if (which == 0) put(never);
    if (which == 1) put(asio::any_io_executor(never));
    if (which == 2) put(weft::scope_executor(never, make_intrusive<call_scope>()));
    asio::post(io, [&] {
      place.resume(io);
      CHECK(called == 0);
    });
    settle(io);
    CHECK(called == 1);
  }
}

}  // namespace core_erased_handler
