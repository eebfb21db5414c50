// SPDX-License-Identifier: BSL-1.0
// Worlds with references, in which losses are noticed within seconds and survived.
#pragma once

#include <weft/engine/services/rref_service.hpp>
#include <weft/sim/settings.hpp>

#include <chrono>

namespace weft::testing {

inline engine::service_makers with_references() { return engine::services<engine::rref_service>(); }

inline sim::settings that_goes_on() {
  using namespace std::chrono_literals;
  sim::settings how;
  how.worker.on_loss = loss_policy::go_on();
  how.worker.lost_after = 1s;
  how.worker.handshake_deadline = 500ms;
  how.worker.waiting = 0s;
  return how;
}

}  // namespace weft::testing
