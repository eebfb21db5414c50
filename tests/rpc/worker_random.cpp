// SPDX-License-Identifier: BSL-1.0
// A worker's random source is the program's: it is never asked by two threads at once, whoever asks
// the worker for it (user code, handshakes on the front thread).
#include <weft/rpc/connection.hpp>
#include <weft/rpc/worker.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <core/manual_clock.hpp>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;

class no_network final : public weft::network {
 public:
  std::vector<weft::member::address> listen(asio::io_context&) override { return {}; }
  asio::awaitable<weft::connection_ptr> connect(const weft::membership&, std::uint32_t,
                                                asio::io_context&) override {
    throw weft::rpc_error(weft::errc::no_common_transport, "there is no network");
  }
  void accept(std::function<asio::io_context&()>,
              std::function<void(weft::connection_ptr, asio::io_context&)>) override {}
  void close() noexcept override {}
};

class bare_worker final : public weft::worker {
 public:
  bare_worker(weft::environment env, weft::membership all)
      : worker(std::move(env), std::move(all), weft::options()) {}
  void shutdown(const weft::error&) override {}
  weft::link& to(std::uint32_t) noexcept override { std::abort(); }
};

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
  asio::io_context context;
  weft::testing::manual_clock clock;
  no_network network;
  watched_source source;
  weft::membership all;
  all.members.push_back({"worker0", "even", {1, 0}, {}});
  bare_worker me({context, clock, [&source] { return source(); }, network, {}}, all);
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
