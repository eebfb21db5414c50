// SPDX-License-Identifier: BSL-1.0
// An object for references, and what is left of them when a test is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <rref/pure.hpp>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {

struct box;
struct shelf {
  std::vector<rref<box>> boxes;
  asio::awaitable<int> sizes();
};

struct box {
  std::string text;

  int size() { return static_cast<int>(text.size()); }
  asio::awaitable<int> size_later() { co_return static_cast<int>(text.size()); }
  immediate<int> size_here() { return static_cast<int>(text.size()); }
  std::string spell() { return text; }
  shelf keep(std::vector<rref<box>> others) { return {std::move(others)}; }
};
inline asio::awaitable<int> shelf::sizes() {
  int sum = 0;
  for (const rref<box>& b : boxes) sum += co_await b.call<&box::size>();
  co_return sum;
}

/// What all workers' books say, without the names that worker `rank` gave.
[[nodiscard]] inline std::string books(pure_cluster& all) {
  std::string out;
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    const auto now = rrefs(all, r).counters();
    out += rrefs(all, r).describe();
    if (now.pins + now.promised + now.waiting + now.refused != 0) {
      out += "worker " + std::to_string(r) + ": " + std::to_string(now.pins) + " pins, " +
             std::to_string(now.promised) + " promised, " + std::to_string(now.waiting) +
             " waiting, " + std::to_string(now.refused) + " refused\n";
    }
  }
  return out;
}

/// Nothing is in the books, nobody waits, every link lives.
[[nodiscard]] inline asio::awaitable<bool> all_is_well(pure_cluster& all, worker& me) {
  const bool idle = co_await eventually([&all] {
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      const auto now = rrefs(all, r).counters();
      if (!rrefs(all, r).idle() || now.pins + now.promised + now.waiting != 0) return false;
    }
    return true;
  });
  INFO(books(all));
  CHECK(idle);
  bool well = idle;
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    CHECK(rrefs(all, r).counters().refused == 0);
    if (r == me.rank()) continue;
    INFO(me.link_to(r).reason().message());
    CHECK(me.link_to(r).current_state() == link::state::up);
    CHECK(calls_waiting(me, r) == 0);
    well = well && me.link_to(r).current_state() == link::state::up;
  }
  co_return well;
}

}  // namespace weft::testing
