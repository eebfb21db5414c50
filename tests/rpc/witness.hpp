// SPDX-License-Identifier: BSL-1.0
// A service that remembers which links its workers lost.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/service.hpp>
#include <weft/rpc/worker.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace weft::testing {

/// Of all workers of this process, as often as each hears of it.
struct witness final : service {
  static constexpr service_id place = service_id::reserved2;
  explicit witness(worker&) {}
  void down(link& peer, const error&) override {
    const std::lock_guard lock(mutex());
    lost()[peer.self().rank()].insert(peer.rank());
  }
  static std::multiset<std::uint32_t> lost_to(std::uint32_t rank) {
    const std::lock_guard lock(mutex());
    return lost()[rank];
  }
  static void forget() {
    const std::lock_guard lock(mutex());
    lost().clear();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex it;
    return it;
  }
  static std::map<std::uint32_t, std::multiset<std::uint32_t>>& lost() {
    static std::map<std::uint32_t, std::multiset<std::uint32_t>> it;
    return it;
  }
};

}  // namespace weft::testing
