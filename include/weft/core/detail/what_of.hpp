// SPDX-License-Identifier: BSL-1.0
// What an exception says.
#pragma once

#include <exception>

namespace weft::detail {

/// Its text, as long as it lives; words of ours if it has none, which nothing forbids.
[[nodiscard]] inline const char* what_of(const std::exception& e) noexcept {
  const char* const text = e.what();
  if (!text) return "an exception that says nothing: its what() is null";
  return *text ? text : "an exception that says nothing: its what() is empty";
}

}  // namespace weft::detail
