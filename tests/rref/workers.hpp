// SPDX-License-Identifier: BSL-1.0
// Many workers in one process, with references and gradients.
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/rref/detail/broadcasts.hpp>
#include <weft/rref/peer.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <rpc/cluster.hpp>
#include <rref/gate.hpp>
#include <rref/left.hpp>
#include <utility>
#include <vector>

namespace weft::testing {

extern template class cluster_with<rref_service, autograd_service, detail::broadcasts>;

[[nodiscard]] inline options with_pool(options o) {
  if (o.compute_threads == 0) o.compute_threads = 2;
  return o;
}

/// As `cluster`, with services. Worker 0's main is the test; the others serve.
class workers {
 public:
  using main_function = std::function<asio::awaitable<void>(workers&, worker&)>;
  using life = cluster_with<rref_service, autograd_service, detail::broadcasts>;

  workers(std::uint32_t size, over how, options o) : all_(size, how, with_pool(std::move(o))) {}

  /// Runs the test on worker 0; how each run ended.
  std::vector<error> run(const main_function& main_) {
    return all_.run([&](worker& me) { return me.rank() == 0 ? main_(*this, me) : serve(); });
  }

  [[nodiscard]] std::uint32_t size() const { return all_.size(); }
  [[nodiscard]] worker& at(std::uint32_t rank) { return all_.at(rank); }
  [[nodiscard]] rref_service& rrefs(std::uint32_t rank) { return at(rank).use<rref_service>(); }

 private:
  static asio::awaitable<void> serve() { co_return; }

  life all_;
};

/// Runs a test on `size` workers, and checks that the run ends well and no reference is left. Whom
/// the test left behind has failed.
inline void run_workers(std::uint32_t size, over how, const options& o,
                        const workers::main_function& main_) {
  workers all(size, how, o);
  std::vector<std::uint32_t> left;
  const auto ends = all.run([&](workers& w, worker& me) -> asio::awaitable<void> {
    co_await main_(w, me);
    co_await check_nothing_is_left(w);
    for (std::uint32_t r = 0; r < size; ++r) {
      if (left_behind(w, r)) left.push_back(r);
    }
  });
  for (std::uint32_t r = 0; r < size; ++r) {
    INFO("rank ", r, " over ", name_of(how), ": ", ends[r].message());
    CHECK(static_cast<bool>(ends[r]) == (std::find(left.begin(), left.end(), r) != left.end()));
  }
}
inline void run_workers(std::uint32_t size, const workers::main_function& main_) {
  run_workers(size, over::inproc, with_io_threads(0), main_);
}

/// The same test in several ways.
inline void workers_everywhere(std::uint32_t size, const workers::main_function& main_) {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_workers(size, how, with_io_threads(io_threads), main_);
  }
}

}  // namespace weft::testing
