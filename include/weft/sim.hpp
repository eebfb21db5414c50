// SPDX-License-Identifier: BSL-1.0
// `weft::sim::world`: a whole run of real workers in one thread and in virtual time. One seed
// decides everything. For tests of programs; a program includes this or weft/run.hpp in one file.
//
//   for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
//     weft::sim::world w(seed, {.workers = 3}, weft::sim::services());
//     w.start(main_);
//     if (!w.run(5min)) std::cout << "seed " << seed << ": " << w.waits() << '\n';
//   }
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/rref/detail/broadcasts.hpp>
#include <weft/sim/shrink.hpp>
#include <weft/sim/world.hpp>
#include <weft/weft.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/Parallel.h>

namespace weft::sim {

/// The services for references and gradients, which `run` gives to its workers. From then on
/// libtorch computes in one thread in this process: otherwise a world could not be repeated.
[[nodiscard]] inline engine::service_makers services() {
  at::set_num_threads(1);
  return engine::services<rref_service, autograd_service, weft::detail::broadcasts>();
}

}  // namespace weft::sim

#include <weft/core/detail/macros_on.hpp>
