// SPDX-License-Identifier: BSL-1.0
// Randomness of the operating system. Apart from random.hpp, since <random> is a long header.
#pragma once

#include <weft/core/random.hpp>

#include <cstdint>
#include <random>

namespace weft {

/// The operating system's entropy.
[[nodiscard]] inline random_source system_random() {
  return [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  };
}

}  // namespace weft
