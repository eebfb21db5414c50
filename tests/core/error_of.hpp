// SPDX-License-Identifier: BSL-1.0
// The error that a plain function throws.
#pragma once

#include <weft/core/error.hpp>

namespace weft::testing {

/// Success if it throws none.
template <class Work>
[[nodiscard]] error error_of(Work&& work) {
  try {
    work();
  } catch (const rpc_error& e) {
    return e.error();
  }
  return {};
}

}  // namespace weft::testing
