// SPDX-License-Identifier: BSL-1.0
// Counts what this thread allocates through operator new.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft_test {

struct allocation_count {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t largest = 0;
};

/// Since the thread began. `largest` is since it was last set to 0.
allocation_count& allocations() noexcept;

}  // namespace weft_test
