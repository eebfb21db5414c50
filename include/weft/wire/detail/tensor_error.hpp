// SPDX-License-Identifier: BSL-1.0
// What an exception says, without what only its thrower's debugger wants.
#pragma once

#include <weft/core/detail/what_of.hpp>

#include <c10/util/Exception.h>

#include <cstddef>
#include <exception>
#include <string>

namespace weft::detail {

/// The text of an exception; of libtorch's, without the list of stack frames that `what()` has, and
/// without what follows a long error's first paragraph, such as all kernels of an operator.
[[nodiscard]] inline std::string words_of(const std::exception& e) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&e)) {
    constexpr std::size_t long_text = 1000;
    const std::string text = torch->what_without_backtrace();
    return text.substr(0, text.size() > long_text ? text.find("\n\n") : text.npos);
  }
  return what_of(e);
}

}  // namespace weft::detail
