// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/link/window.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace windows {

using weft::engine::receive_window;
using weft::engine::request_cost;
using weft::engine::send_window;

constexpr std::uint64_t kib = 1024;

TEST_CASE("window: an empty request counts one KiB, a large one its bytes") {
  CHECK(request_cost(64) == kib);
  CHECK(request_cost(kib) == kib);
  CHECK(request_cost(5 * kib + 1) == 5 * kib + 1);
}

TEST_CASE("window: a caller stops when it is used up, and goes on with credit") {
  send_window w(2 * kib);
  REQUIRE(w.sent(kib));
  REQUIRE(w.sent(40 * kib));  // whatever its size: the window was not used up before it
  CHECK_FALSE(w.sent(kib));
  CHECK(w.full());
  CHECK(w.ask());
  CHECK_FALSE(w.ask());  // once
  CHECK(w.credited(0));  // the peer starves, too
  CHECK_FALSE(w.ask());
  CHECK(w.credited(40 * kib));
  CHECK_FALSE(w.full());
  CHECK(w.sent(kib));
  CHECK(w.full());
  CHECK(w.ask());  // starved anew
  CHECK(w.credited(kib));
  CHECK(w.used() == kib);
  CHECK_FALSE(w.credited(2 * kib));  // never used
  CHECK(w.credited(kib));
  CHECK(w.used() == 0);
}

TEST_CASE("window: a callee refuses what is beyond it") {
  receive_window w(2 * kib, 0);
  CHECK(w.arrived(kib));
  CHECK(w.arrived(9 * kib));
  CHECK_FALSE(w.arrived(kib));
  w.begun(9 * kib);
  CHECK_FALSE(w.arrived(kib));  // the peer was not told yet
  CHECK(w.take_due() == 9 * kib);
  CHECK(w.arrived(kib));
  CHECK_FALSE(w.arrived(kib));
}

TEST_CASE("window: credit is worth a frame from a quarter on, or when the peer starves") {
  receive_window w(16 * kib, 0);
  for (int i = 0; i < 4; ++i) REQUIRE(w.arrived(kib));
  for (int i = 0; i < 3; ++i) w.begun(kib);
  CHECK(w.take_due() == 0);
  w.starved();
  CHECK(w.take_due() == 3 * kib);
  w.begun(kib);
  CHECK(w.take_due() == 0);
  CHECK(w.take_all() == kib);
  w.starved();
  CHECK(w.take_due() == 0);  // nothing is free; the wish stays
  REQUIRE(w.arrived(kib));
  w.begun(kib);
  CHECK(w.take_due() == kib);
}

TEST_CASE("window: nothing begins while too many bytes of replies are unwritten") {
  receive_window w(kib, 100);
  w.reply_queued(100);
  CHECK(w.may_begin());
  w.reply_queued(1);
  CHECK_FALSE(w.may_begin());
  w.reply_written(1);
  CHECK(w.may_begin());
}

TEST_CASE("window: of large replies the largest holds up nothing") {
  receive_window w(kib, 100, receive_window::replies::but_the_largest);
  w.reply_queued(1000);
  CHECK(w.may_begin());
  w.reply_queued(100);
  CHECK(w.may_begin());
  w.reply_queued(1);
  CHECK_FALSE(w.may_begin());
  w.reply_queued(2000);
  CHECK_FALSE(w.may_begin());
  w.reply_written(1000);
  w.reply_written(100);
  CHECK(w.may_begin());
  w.reply_written(1);
  CHECK(w.may_begin());
  w.reply_written(2000);
  for (int i = 0; i < 3; ++i) w.reply_queued(90);  // the large ones are forgotten
  CHECK_FALSE(w.may_begin());
}

// Both ends over a wire with delay: frames keep their order within a direction and may wait for any
// time. An honest caller is never refused, the callee never holds more than the window and one
// request, and everything that waits is sent in the end.
TEST_CASE("window: random schedules are honest, bounded and live") {
  std::mt19937 random(7);
  int sent_back = 0;
  const auto draw = [&random](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t granted = (1 + draw(8)) * kib;
    const std::uint64_t largest = (1 + draw(12)) * kib;
    send_window caller(granted);
    receive_window callee(granted, 0);
    std::deque<std::uint64_t> requests;  // under way; 0: starved
    std::deque<std::uint64_t> credits;   // under way
    std::vector<std::uint64_t> waiting;  // not begun
    std::uint64_t left = 60;
    int encoding = 0;  // threads that found room
    for (int step = 0; step < 20'000; ++step) {
      if (left == 0 && caller.used() == 0) break;
      switch (draw(5)) {
      case 0:
        if (left > 0 && !caller.full()) {
          ++encoding;
        } else if (left > 0 && caller.ask()) {
          requests.push_back(0);
        }
        break;
      case 4: {
        if (encoding == 0) break;
        --encoding;
        const std::uint64_t cost = request_cost(draw(largest));
        if (left == 0) break;
        if (caller.sent(cost)) {
          requests.push_back(cost);
          --left;
        } else {
          ++sent_back;
        }
        break;
      }
      case 1:
        if (requests.empty()) break;
        if (requests.front() == 0) {
          callee.starved();
          if (const auto credit = callee.take_due()) credits.push_back(credit);
        } else {
          REQUIRE(callee.arrived(requests.front()));
          waiting.push_back(requests.front());
        }
        requests.pop_front();
        break;
      case 2:
        if (waiting.empty()) break;
        callee.begun(waiting.back());
        waiting.pop_back();
        if (left == 0 && waiting.empty() && requests.empty()) {
          if (const auto last = callee.take_all()) credits.push_back(last);  // with a reply
        } else if (const auto credit = callee.take_due()) {
          credits.push_back(credit);
        }
        break;
      default:
        if (credits.empty()) break;
        REQUIRE(caller.credited(credits.front()));
        credits.pop_front();
      }
      REQUIRE(callee.held() < granted + std::max(largest, kib));
    }
    CHECK(left == 0);
    CHECK(caller.used() == 0);
  }
  CHECK(sent_back > 100);  // several found what one of them used up
}

}  // namespace windows
