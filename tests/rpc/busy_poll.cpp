// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/busy_poll.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <sched.h>

namespace busy_polls {

using namespace std::chrono_literals;
using weft::detail::run_polling;
using weft::detail::usable_cores;

/// Goes on by 10 µs whenever it is read.
class counting_clock final : public weft::clock {
 public:
  [[nodiscard]] weft::time_point now() const noexcept override {
    ++reads;
    if (on_read) on_read();
    return weft::time_point(reads.load() * 10us);
  }
  [[nodiscard]] std::unique_ptr<weft::timer> make_timer(asio::io_context& /*context*/) override {
    throw std::logic_error("nobody asks for a timer here");
  }

  mutable std::atomic<int> reads{0};
  std::function<void()> on_read;
};

TEST_CASE("busy poll: runs what there is and returns when nothing is left") {
  const counting_clock time;
  for (const auto budget : {std::optional<weft::duration>(), std::optional<weft::duration>(0us),
                            std::optional<weft::duration>(50us)}) {
    asio::io_context context(1);
    std::vector<int> seen;
    asio::post(context, [&] {
      seen.push_back(1);
      asio::post(context, [&] { seen.push_back(2); });
    });
    run_polling(context, time, budget);
    CHECK(seen == std::vector{1, 2});
  }
}

TEST_CASE("busy poll: looks again for as long as the budget says, then sleeps") {
  counting_clock time;
  asio::io_context context(1);
  asio::post(context, [] {});
  asio::steady_timer later(context, 50ms);
  int reads_when_woken = 0;
  later.async_wait([&](const asio::error_code&) { reads_when_woken = time.reads; });
  run_polling(context, time, 100us);
  CHECK(reads_when_woken >= 10);
  CHECK(reads_when_woken <= 12);
}

TEST_CASE("busy poll: work that comes within the budget does not wait for a sleeper to wake") {
  counting_clock time;
  asio::io_context context(1);
  const auto guard = asio::make_work_guard(context);
  int reads_at_work = 0;
  time.on_read = [&] {
    if (time.reads == 5) {
      asio::post(context, [&] {
        reads_at_work = time.reads;
        context.stop();
      });
    }
  };
  asio::post(context, [] {});
  run_polling(context, time, 1ms);
  CHECK(reads_at_work == 5);
}

TEST_CASE("busy poll: ends when stopped by another thread, polling or asleep") {
  for (const auto budget : {0us, 50us, 1'000'000us}) {
    const weft::real_clock time;
    asio::io_context context(1);
    const auto guard = asio::make_work_guard(context);
    std::atomic<bool> began{false};
    asio::post(context, [&] { began = true; });
    std::thread runner([&] { run_polling(context, time, budget); });
    while (!began) std::this_thread::yield();
    context.stop();
    runner.join();
    CHECK(context.stopped());
  }
}

TEST_CASE("busy poll: on a single core it is off unless asked for") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cores() == static_cast<unsigned>(CPU_COUNT(&before)));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  const auto reads_with = [](std::optional<weft::duration> budget) {
    const counting_clock time;
    asio::io_context context(1);
    asio::post(context, [] {});
    run_polling(context, time, budget);
    return time.reads.load();
  };
  CHECK(reads_with({}) == 0);
  CHECK(reads_with(50us) > 0);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

}  // namespace busy_polls
