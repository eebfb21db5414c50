// SPDX-License-Identifier: BSL-1.0
// A worker without links, network and run, for what needs no more than that.
#pragma once

#include <weft/rpc/connection.hpp>
#include <weft/rpc/worker.hpp>

#include <core/manual_clock.hpp>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace weft::testing {

class no_network final : public network {
 public:
  std::vector<member::address> listen(asio::io_context&) override { return {}; }
  asio::awaitable<connection_ptr> connect(const membership&, std::uint32_t,
                                          asio::io_context&) override {
    throw rpc_error(errc::no_common_transport, "there is no network");
  }
  void accept(std::function<asio::io_context&()>,
              std::function<void(connection_ptr, asio::io_context&)>) override {}
  void close() noexcept override {}
};

/// What a worker is made of; a base, so that it outlives the worker.
struct surroundings {
  asio::io_context context;
  manual_clock clock;
  no_network network;
};

class bare_worker final : private surroundings, public worker {
 public:
  explicit bare_worker(random_source random = [] { return std::uint64_t{1}; })
      : worker({surroundings::context,
                surroundings::clock,
                std::move(random),
                surroundings::network,
                {}},
               alone(), options()) {}
  void shutdown(const error&) override {}
  link& to(std::uint32_t) noexcept override { std::abort(); }
  void hold_turn() noexcept override {}

 private:
  static membership alone() {
    membership all;
    all.members.push_back({"worker0", "even", {1, 0}, {}});
    return all;
  }
};

}  // namespace weft::testing
