// SPDX-License-Identifier: BSL-1.0
// Bodies of ../launch.hpp.
#pragma once

#include <weft/engine/launch/launch.hpp>
#include <weft/engine/launch/supervisor.hpp>
#include <weft/rpc/options.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace weft {

WEFT_DECL int launch_local(const options& o) {
  launch_options launch;
  launch.workers = std::max(1u, o.workers);
  launch.foreground = o.foreground;
  launch.shutdown = o.shutdown_deadline;
  launch.name = [name = o.name](std::uint32_t rank, std::uint32_t size) {
    return name(rank, size, "worker" + std::to_string(rank));
  };
  launch.may_go = [policy = o.on_loss, role = o.role, n = launch.workers](std::uint32_t rank) {
    return policy.goes_on_without(role(rank, n, ""));
  };
  return launch_local(std::move(launch));
}

WEFT_DECL int launch_local(launch_options o) {
  engine::check_workers(o.workers);
  return engine::supervisor(std::move(o)).supervise();
}

}  // namespace weft
