// SPDX-License-Identifier: BSL-1.0
// Links that tests of references cut, and what is left at the end of a test. `Workers` are those of
// pure.hpp or workers.hpp.
#pragma once

#include <weft/rpc/worker.hpp>
#include <weft/rref/service.hpp>

#include <asio/awaitable.hpp>
#include <doctest/doctest.h>

#include <cstdint>
#include <rref/gate.hpp>
#include <string>

namespace weft::testing {

inline asio::awaitable<void> lose_link(worker& me, std::uint32_t rank) {
  me.link_to(rank).mark_down(error(errc::peer_died, "the cable was cut"));
  co_return;
}

/// Whether the run goes on without that worker. Worker 0's thread.
template <class Workers>
[[nodiscard]] bool left_behind(Workers& all, std::uint32_t rank) {
  return rank != 0 && all.at(0).link_to(rank).current_state() == link::state::down;
}

/// No worker holds or owns a reference; false if that takes too long.
template <class Workers>
[[nodiscard]] asio::awaitable<bool> nothing_is_left(Workers& all) {
  co_return co_await eventually([&all] {
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      if (!left_behind(all, r) && !all.at(r).template use<rref_service>().idle()) return false;
    }
    return true;
  });
}
template <class Workers>
[[nodiscard]] asio::awaitable<void> check_nothing_is_left(Workers& all) {
  const bool nothing = co_await nothing_is_left(all);
  std::string left;
  for (std::uint32_t r = 0; r < all.size(); ++r) {
    left += all.at(r).name() + ": " + all.at(r).template use<rref_service>().describe() + "\n";
  }
  INFO(left);
  CHECK(nothing);
}

}  // namespace weft::testing
