// SPDX-License-Identifier: BSL-1.0
// Where workers that a test started by hand meet over TCP, and a look into their store.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weft::testing {

/// A port that was free a moment ago.
inline std::string free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no port");
  return std::to_string(ntohs(address.sin_port));
}

/// A store that rank 0 serves, and a look into it.
struct store_at {
  std::string port = free_port();
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
  }
  [[nodiscard]] bool has(const std::string& key) {
    try {
      if (!store && !answers()) return false;
      if (!store) {
        c10d::TCPStoreOptions o;
        o.port = static_cast<std::uint16_t>(std::stoi(port));
        o.waitWorkers = false;
        o.useLibUV = false;
        o.timeout = std::chrono::seconds(1);
        store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", o);
      }
      return store->check({"weft/0/" + key});
    } catch (const std::exception&) {
      return false;
    }
  }
  /// The store's own client would wait, and complain at length.
  [[nodiscard]] bool answers() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    const bool there = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    return there;
  }
  c10::intrusive_ptr<c10d::TCPStore> store;
};

}  // namespace weft::testing
