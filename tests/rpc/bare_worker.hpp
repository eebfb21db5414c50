// SPDX-License-Identifier: BSL-1.0
// A worker without links, network and run, for what needs no more than that.
#pragma once

#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

#include <core/manual_clock.hpp>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>

namespace weft::testing {

/// What a worker is made of; a base, so that it outlives the worker.
struct surroundings {
  asio::io_context context;
  manual_clock clock;
};

class bare_worker final : private surroundings, public worker {
 public:
  explicit bare_worker(random_source random = [] { return std::uint64_t{1}; })
      : worker(surroundings::context, surroundings::clock, std::move(random), alone(), options()) {}
  asio::any_io_executor executor_in(intrusive_ptr<const call_scope>) const override { return {}; }
  bool on_thread() const noexcept override { return true; }
  loop_state loop() const noexcept override { return loop_state::idle; }
  std::uint64_t times_run() const noexcept override { return 0; }
  bool needs_this_thread() const noexcept override { return false; }
  const asio::any_io_executor& compute_pool() const noexcept override { return none_; }
  worker_stats stats() const noexcept override { return {}; }
  void shutdown(const error&) override {}
  weft::link& link_to(std::uint32_t) noexcept override { std::abort(); }

 private:
  static membership alone() {
    membership all;
    all.members.push_back({"worker0", "even", {1, 0}, {}});
    return all;
  }

  asio::any_io_executor none_;
};

}  // namespace weft::testing
