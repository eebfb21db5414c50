// SPDX-License-Identifier: BSL-1.0
// What an exception says, without what only its thrower's debugger wants.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace weft::detail {

/// The text of an exception; of libtorch's, without the list of stack frames that `what()` has.
[[nodiscard]] inline std::string words_of(const std::exception& e) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&e)) {
    return torch->what_without_backtrace();
  }
  return e.what();
}

}  // namespace weft::detail
