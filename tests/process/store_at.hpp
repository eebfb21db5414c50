// SPDX-License-Identifier: BSL-1.0
// Where workers that a test started by hand meet over TCP, and a look into their store.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
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

/// A port that was free a moment ago, another one each time. It lies below those that the system
/// gives to whoever connects (from 32768 on), or one of them would take it meanwhile.
inline std::string free_port() {
  constexpr unsigned first = 12'000;
  constexpr unsigned count = 20'000;
  static std::atomic<unsigned> next{static_cast<unsigned>(::getpid()) * 97};
  for (unsigned tried = 0; tried < 1000; ++tried) {
    const unsigned port = first + next++ % count;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);  // as the store does
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free) return std::to_string(port);
  }
  throw std::runtime_error("no port");
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
