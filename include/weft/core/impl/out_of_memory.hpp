// SPDX-License-Identifier: BSL-1.0
// Body of weft/core/detail/out_of_memory.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>

#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace weft::detail {

WEFT_DECL void out_of_memory() noexcept {
  while (process_name::ends.test_and_set()) ::pause();  // bounded: another thread ends the process
  char line[512] = "weft: ";
  const auto add = [&line](const char* text) {
    std::strncat(line, text, sizeof line - std::strlen(line) - 1);
  };
  if (const char* const name = process_name::newest.load()) {
    add(name);
    add(process_name::workers.load() > 1 ? " (and the other workers of its process): " : ": ");
  }
  add("out of memory: weft cannot allocate one of its own small objects, so this process ends\n");
  // Nothing can be done if that fails, too.
  static_cast<void>(!::write(STDERR_FILENO, line, std::strlen(line)));
  std::_Exit(EXIT_FAILURE);
}

}  // namespace weft::detail
