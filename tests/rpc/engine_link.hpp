// SPDX-License-Identifier: BSL-1.0
// The link behind the interface, for tests that look at more than calls and services see. Whoever
// includes it compiles the whole engine.
#pragma once

#include <weft/engine/worker/worker.hpp>
#include <weft/rpc/worker.hpp>

#include <cstdint>

namespace weft::testing {

[[nodiscard]] inline engine::worker& engine_worker(worker& me) {
  return static_cast<engine::worker&>(me);
}
[[nodiscard]] inline engine::link& engine_link(worker& me, std::uint32_t rank) {
  return static_cast<engine::link&>(me.link_to(rank));
}

}  // namespace weft::testing
