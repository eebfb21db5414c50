// SPDX-License-Identifier: BSL-1.0
// Many workers in one process, each on a thread of its own.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <core/run_all.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

namespace weft::engine {
class runtime;
}

namespace weft::testing {

enum class over : std::uint8_t { inproc, tcp, unix_socket };

inline std::string name_of(over how) {
  switch (how) {
  case over::inproc:
    return "inproc";
  case over::tcp:
    return "tcp";
  case over::unix_socket:
    return "unix";
  }
  return "?";
}

/// Leaves options.io_threads as it is.
inline constexpr unsigned by_default = ~0u;
[[nodiscard]] inline options with_io_threads(unsigned io_threads) {
  options o;
  if (io_threads != by_default) o.io_threads = io_threads;
  if (io_threads == 0) o.bulk_bytes = 1;  // small tensors travel as large ones do
  return o;
}

/// What all of them take before they give some back.
inline void set_windows(membership& all, std::uint64_t bytes) {
  for (std::uint32_t r = 0; r < all.size(); ++r) all.members.change(r).window = bytes;
}

/// `real` workers named "worker<rank>", of role "even" or "odd", and `strangers` members whose ends
/// the test plays itself.
template <class... Services>
class cluster_with {
 public:
  using main_function = std::function<asio::awaitable<void>(worker&)>;

  cluster_with(std::uint32_t real, over how, options o = with_io_threads(0),
               std::uint32_t strangers = 0);
  cluster_with(const cluster_with&) = delete;
  cluster_with& operator=(const cluster_with&) = delete;
  ~cluster_with();

  /// To be changed before `start`.
  [[nodiscard]] membership& members() { return members_; }

  /// The workers' runs begin, each with that main.
  void start(const main_function& main_);
  /// Waits for all runs; how each ended.
  [[nodiscard]] std::vector<error> join();
  [[nodiscard]] std::vector<error> run(const main_function& main_) {
    start(main_);
    return join();
  }
  /// Ends a run with strangers, who never report that they are done.
  void stop();

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(lives_.size()); }
  /// Between `start` and the end of this object.
  [[nodiscard]] worker& at(std::uint32_t rank);

 private:
  test_part under_way_;
  membership members_;
  std::vector<std::unique_ptr<engine::runtime>> lives_;
  std::vector<error> ends_;
  std::vector<std::thread> threads_;
};
using cluster = cluster_with<>;
extern template class cluster_with<>;

/// Calls of that worker to `rank` that wait for their replies. Worker's thread.
[[nodiscard]] std::size_t calls_waiting(worker& me, std::uint32_t rank);

/// Runs `main_` on `size` workers and checks that the run ends well.
inline void run_well(std::uint32_t size, over how, const options& o,
                     const cluster::main_function& main_) {
  cluster workers(size, how, o);
  const auto ends = workers.run(main_);
  for (std::size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r, " over ", name_of(how), ": ", ends[r].message());
    CHECK_FALSE(ends[r]);
  }
}

/// None, and by default; if everything runs, also one to so many.
[[nodiscard]] inline std::vector<unsigned> io_ways(unsigned most_io_threads = 1) {
  std::vector<unsigned> all = {0, by_default};
  for (unsigned n = 1; run_all() && n <= most_io_threads; ++n) all.push_back(n);
  return all;
}

struct way {
  over how;
  unsigned io_threads;
};
/// Every transport, by default, and with none to so many I/O threads. Unless everything runs, two of
/// these ways, by the test case's name.
[[nodiscard]] inline std::vector<way> ways(unsigned most_io_threads = 1) {
  // In pairs that differ in both.
  std::vector<way> all = {{over::inproc, 0},      {over::tcp, by_default},
                          {over::tcp, 0},         {over::unix_socket, by_default},
                          {over::unix_socket, 0}, {over::inproc, by_default}};
  if (run_all()) {
    for (unsigned n = 1; n <= most_io_threads; ++n) {
      for (const over how : {over::inproc, over::tcp, over::unix_socket}) all.push_back({how, n});
    }
    return all;
  }
  const std::string name = doctest::getContextOptions()->currentTest->m_name;
  const std::size_t first = std::hash<std::string>{}(name) % (all.size() / 2) * 2;
  return {all[first], all[first + 1]};
}

inline void everywhere(std::uint32_t size, const cluster::main_function& main_) {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_well(size, how, with_io_threads(io_threads), main_);
  }
}

/// The failure of a call: `co_await failure_of(peer.call<&f>(..., as_expected))`.
template <class T>
asio::awaitable<error> failure_of(asio::awaitable<expected<T>> call) {
  auto result = co_await std::move(call);
  co_return result ? error() : result.error();
}
/// That of a started one.
template <class T>
asio::awaitable<error> failure_of(future<T> started) {
  try {
    static_cast<void>(co_await std::move(started));
  } catch (const rpc_error& e) {
    co_return e.error();
  }
  co_return error();
}

[[nodiscard]] inline bool says(const error& e, const std::string& text) {
  return e.message().find(text) != std::string::npos;
}

}  // namespace weft::testing
