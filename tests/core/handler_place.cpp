// SPDX-License-Identifier: BSL-1.0
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/handler_place.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <doctest/doctest.h>

#include <core/loop.hpp>
#include <memory>
#include <utility>

namespace core_handler_place {

using weft::call_scope;
using weft::make_intrusive;
using weft::detail::handler_place;
using weft::testing::settle;

TEST_CASE("handler_place: what it holds is called once, and the place is free while it runs") {
  asio::io_context io;
  handler_place place;
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

TEST_CASE("handler_place: what is dropped, or left in it, is destroyed and not called") {
  const auto alive = std::make_shared<int>(0);
  bool called = false;
  {
    handler_place place;
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

TEST_CASE("handler_place: the handler may be the last to hold the place, dropped or called") {
  asio::io_context io;
  for (const bool call : {false, true}) {
    auto place = std::make_shared<handler_place>();
    const std::weak_ptr<handler_place> seen = place;
    handler_place& there = *place;
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

TEST_CASE("handler_place: a handler is called inside the scope of its executor") {
  asio::io_context io;
  handler_place place;
  const auto scope = make_intrusive<call_scope>();
  const call_scope* within = nullptr;
  place.put(
      asio::bind_executor(weft::scoped(io, scope), [&] { within = weft::this_scope().get(); }));
  asio::post(io, [&] { place.resume(io); });
  settle(io);
  CHECK(within == scope.get());
  CHECK_FALSE(weft::this_scope());
}

TEST_CASE("handler_place: a handler of another executor is called there, not here") {
  asio::io_context here;
  asio::io_context there;
  handler_place place;
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

}  // namespace core_handler_place
