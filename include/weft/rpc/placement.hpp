// SPDX-License-Identifier: BSL-1.0
// Which worker of a run this is: rank, world size, and how many workers share this host.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// The place of a worker, from a launcher, or from `options::place` instead.
///
///   o.place = weft::placement{.rank = 1, .size = 2, .on_this_host = 2};
struct placement {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t on_this_host = 1;  ///< workers here, this one included
  std::string launcher{};          ///< "torchrun", "mpirun", "srun"; empty: none
  bool hosts_known = false;        ///< a launcher has set `on_this_host`; else that is a guess

  [[nodiscard]] bool one_host() const noexcept { return on_this_host == size; }
};

}  // namespace weft
