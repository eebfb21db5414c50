// SPDX-License-Identifier: BSL-1.0
// What a process holds in memory, without what ThreadSanitizer writes down of it.
#pragma once

#include <weft/core/detail/thread_sanitizer.hpp>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

#include <sys/types.h>

namespace weft::testing {

inline std::int64_t resident_kib(pid_t pid) {
  const std::string of = "/proc/" + std::to_string(pid);
  std::int64_t kib = 0;
#if defined(WEFT_THREAD_SANITIZER)
  constexpr std::uint64_t first_of_program = 0x5500'0000'0000;  // its records lie below
  std::ifstream in(of + "/smaps");
  std::uint64_t at = 0;
  for (std::string line; std::getline(in, line);) {  // bounded: by the file
    if (line.find('-') < line.find(' ')) at = std::stoull(line, nullptr, 16);
    if (line.starts_with("Rss:") && at >= first_of_program) kib += std::stoll(line.substr(4));
  }
#else
  std::ifstream in(of + "/status");
  for (std::string word; in >> word;) {  // bounded: by the file
    if (word == "VmRSS:") in >> kib;
  }
#endif
  if (kib == 0) throw std::runtime_error("no resident memory of process " + std::to_string(pid));
  return kib;
}

}  // namespace weft::testing
