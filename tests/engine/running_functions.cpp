// SPDX-License-Identifier: BSL-1.0
#include <weft/core/detail/in_time.hpp>
#include <weft/engine/serving/running_functions.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>

namespace running {

using namespace std::chrono_literals;
using weft::time_point;
using weft::engine::running_functions;

TEST_CASE("running functions: those that run now, whatever order they end in") {
  running_functions all;
  const time_point begun{};
  CHECK(all.list(begun).empty());
  std::optional<running_functions::item> first, second, third;
  first.emplace(all, "first", "worker0", begun);
  second.emplace(all, "second", "worker1", begun + 1s);
  third.emplace(all, "third", "worker1", begun + 2s);
  auto now = all.list(begun + 5s);
  REQUIRE(now.size() == 3);
  CHECK(now[2].function == "first");
  CHECK(now[2].caller == "worker0");
  CHECK(now[2].age == 5s);
  CHECK(now[0].age == 3s);
  second.reset();
  now = all.list(begun + 5s);
  REQUIRE(now.size() == 2);
  CHECK(now[0].function == "third");
  third.reset();
  first.reset();
  CHECK(all.list(begun).empty());
}

TEST_CASE("in time: work that ends, and work that does not before it is let go") {
  bool ran = false;
  CHECK(weft::engine::ends_by(std::chrono::steady_clock::now() + 60s, [&] { ran = true; }));
  CHECK(ran);
  std::promise<void> go, gone;
  auto wait = [may = go.get_future().share(), &gone] {
    may.wait();
    gone.set_value();
  };
  CHECK_FALSE(weft::engine::ends_by(std::chrono::steady_clock::now() + 1ms, wait));
  go.set_value();
  CHECK(gone.get_future().wait_for(60s) == std::future_status::ready);
}

TEST_CASE("in time: what is left behind is not destroyed") {
  struct flag {
    explicit flag(bool& d) : destroyed(d) {}
    ~flag() { destroyed = true; }
    bool& destroyed;
  };
  static bool destroyed = false;
  weft::engine::leak(std::make_unique<flag>(destroyed));
  weft::engine::leak(std::make_unique<flag>(destroyed));
  CHECK_FALSE(destroyed);
}

}  // namespace running
