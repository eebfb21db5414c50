// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/serving/waiting_calls.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

using weft::engine::waiting_calls;
using namespace std::chrono_literals;

namespace {

using call = std::unique_ptr<int>;
using table = waiting_calls<call, std::chrono::steady_clock::time_point>;
const table::time_point t0{};

call make(int n) { return std::make_unique<int>(n); }
std::vector<int> values(const std::vector<call>& calls) {
  std::vector<int> out;
  for (const call& c : calls) out.push_back(*c);
  return out;
}

TEST_CASE("waiting calls: each leaves once, by whichever end comes first") {
  table t(10);
  const auto a = t.add(7, t0 + 3s, make(1));
  const auto b = t.add(8, t0 + 1s, make(2));
  const auto c = t.add(0, std::nullopt, make(3));  // cannot be cancelled, has no deadline
  const auto d = t.add(9, t0 + 2s, make(4));
  CHECK(t.size() == 4);
  CHECK(t.next_deadline() == t0 + 1s);
  CHECK(*t.take(b) == 2);
  CHECK_FALSE(t.waits(b));
  CHECK(t.take(b) == nullptr);
  CHECK(t.take_call(8) == nullptr);
  CHECK(t.next_deadline() == t0 + 2s);
  CHECK(*t.take_call(7) == 1);
  CHECK(t.take(a) == nullptr);
  CHECK(t.take_call(0) == nullptr);
  CHECK(t.take_expired(t0 + 1999ms).empty());
  CHECK(values(t.take_expired(t0 + 5s)) == std::vector{4});
  CHECK_FALSE(t.waits(d));
  CHECK_FALSE(t.next_deadline());
  CHECK(*t.take(c) == 3);
  CHECK(t.size() == 0);
}

TEST_CASE("waiting calls: deadlines pass in their order, equal ones in that of arrival") {
  table t(10);
  for (const int n : {5, 3, 4, 3, 1})
    t.add(0, t0 + n * 1s, make(n * 10 + static_cast<int>(t.size())));
  CHECK(values(t.take_expired(t0 + 4s)) == std::vector{14, 31, 33, 42});
  CHECK(t.size() == 1);
}

TEST_CASE("waiting calls: a closed table has none and takes none") {
  table t(10);
  t.add(1, t0 + 1s, make(1));
  t.add(2, std::nullopt, make(2));
  CHECK_FALSE(t.closed());
  CHECK(values(t.close()) == std::vector{1, 2});
  CHECK(t.closed());
  CHECK(t.size() == 0);
  CHECK(t.take_call(1) == nullptr);
  CHECK(t.take_expired(t0 + 9s).empty());
  CHECK(t.close().empty());
}

TEST_CASE("waiting calls: the table has a limit") {
  table t(2);
  const auto first = t.add(1, {}, make(1));
  CHECK_FALSE(t.full());
  t.add(2, {}, make(2));
  CHECK(t.full());
  CHECK(*t.take(first) == 1);
  CHECK_FALSE(t.full());
}

TEST_CASE("waiting calls: two of one id, which a hostile peer may send") {
  table t(10);
  const auto first = t.add(5, t0 + 1s, make(1));
  t.add(5, t0 + 2s, make(2));
  CHECK(*t.take(first) == 1);
  CHECK(t.take_call(5) == nullptr);  // the second was never to be found by it
  CHECK(values(t.take_expired(t0 + 2s)) == std::vector{2});
  t.add(5, {}, make(3));
  CHECK(*t.take_call(5) == 3);
}

TEST_CASE("waiting calls: at random, all that enters leaves exactly once") {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    table t(64);
    std::multiset<int> in, out;
    std::vector<table::number> numbers;
    int next = 0;
    for (int step = 0; step < 300; ++step) {
      std::vector<call> left;
      const auto id = std::uint64_t{1} + random() % 20;
      switch (random() % 5) {
      case 0:
      case 1:
        if (t.full()) break;
        in.insert(next);
        numbers.push_back(t.add(id, t0 + (random() % 400) * 1ms, make(next++)));
        break;
      case 2:
        if (!numbers.empty()) left.push_back(t.take(numbers[random() % numbers.size()]));
        break;
      case 3:
        left.push_back(t.take_call(id));
        break;
      default:
        left = t.take_expired(t0 + step * 1ms);
        CHECK((!t.next_deadline() || *t.next_deadline() > t0 + step * 1ms));
      }
      for (const call& c : left) {
        if (c) out.insert(*c);
      }
    }
    for (const int n : values(t.close())) out.insert(n);
    CHECK(in == out);
    CHECK_FALSE(t.next_deadline());
  }
}

}  // namespace
