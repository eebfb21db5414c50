// SPDX-License-Identifier: BSL-1.0
// Who this process is to its neighbours, and names that nobody else has.
#pragma once

#include <fstream>
#include <random>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace weft::detail {

/// 32 hexadecimal digits.
[[nodiscard]] inline std::string random_name() {
  std::random_device random;
  std::string name;
  for (int word = 0; word < 4; ++word) {
    const unsigned bits = random();
    for (int shift = 28; shift >= 0; shift -= 4) name += "0123456789abcdef"[bits >> shift & 15u];
  }
  return name;
}

/// Equal for processes of one user that share a boot and a network namespace, and with it the
/// names of Unix sockets and the loopback interface. Where that cannot be known, equal to nobody's.
[[nodiscard]] inline std::string host_identity() {
  std::string boot;
  struct stat network{};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) return random_name();
  return boot + "." + std::to_string(network.st_ino) + "." + std::to_string(::geteuid());
}

}  // namespace weft::detail
