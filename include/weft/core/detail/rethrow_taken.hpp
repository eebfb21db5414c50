// SPDX-License-Identifier: BSL-1.0
// Exceptions that one thread leaves for another.
#pragma once

#include <exception>
#include <utility>

namespace weft::detail {

/// Throws what is there, if anything, and leaves nothing: for the one who waits for what another
/// thread does. That other may be the last to let go of what it was left in, and would free there
/// what has been read here.
inline void rethrow_taken(std::exception_ptr& failure) {
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

}  // namespace weft::detail
