// SPDX-License-Identifier: BSL-1.0
// A worker's random source is the program's: it is never asked by two threads at once, whoever asks
// the worker for it (user code, handshakes on the front thread).
#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <rpc/bare_worker.hpp>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// A source that holds its first caller until another comes in, or for a while.
struct watched_source {
  std::mutex mutex;
  std::condition_variable entered;
  int inside = 0;
  int most = 0;
  std::uint64_t given = 0;

  std::uint64_t operator()() {
    std::unique_lock lock(mutex);
    most = std::max(most, ++inside);
    entered.notify_all();
    if (given == 0) entered.wait_for(lock, 50ms, [this] { return inside > 1; });
    --inside;
    return ++given;
  }
};

TEST_CASE("worker: its random source is asked by one thread at a time") {
  watched_source source;
  weft::testing::bare_worker me([&source] { return source(); });
  std::vector<std::thread> askers;
  std::vector<std::uint64_t> got(4);
  for (auto& mine : got) {
    askers.emplace_back([&] { mine = me.random()(); });
  }
  for (auto& t : askers) t.join();
  CHECK(source.most == 1);
  std::sort(got.begin(), got.end());
  CHECK(got == std::vector<std::uint64_t>{1, 2, 3, 4});
}

}  // namespace
