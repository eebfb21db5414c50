// SPDX-License-Identifier: BSL-1.0
// A peer made by hand over a plain blocking TCP socket, which may say anything.
#pragma once

#include <weft/core/system_random.hpp>
#include <weft/engine/link/handshake.hpp>
#include <weft/wire/frame.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace weft::testing {

using byte_string = std::vector<std::byte>;

/// The bytes of a frame without tensors.
inline byte_string bytes_of(const frame& f) {
  const auto all = f.head.view();
  return {all.begin(), all.end()};
}
inline void append(byte_string& to, const byte_string& more) {
  to.insert(to.end(), more.begin(), more.end());
}

class raw_peer {
 public:
  /// A wait for the other side that lasts longer has failed.
  static constexpr int patience_ms = 40'000;

  /// Connects to "address:port".
  explicit raw_peer(const std::string& endpoint) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const auto colon = endpoint.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(colon + 1))));
    ::inet_pton(AF_INET, endpoint.substr(0, colon).c_str(), &to.sin_addr);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      ::close(fd_);
      throw std::runtime_error("raw_peer: cannot connect to " + endpoint);
    }
    without_delay();
  }
  /// Takes over a connected socket.
  explicit raw_peer(int fd) : fd_(fd) { without_delay(); }
  raw_peer(raw_peer&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), pending_(std::move(other.pending_)) {}
  raw_peer& operator=(raw_peer&&) = delete;
  ~raw_peer() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// False: the other side closed.
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        throw std::runtime_error("raw_peer: the other side neither reads nor closes");
      }
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const frame& f) { return send(f.head.view()); }
  /// Whether the other side has closed, as far as is known without reading.
  [[nodiscard]] bool ended() const {
    pollfd now{fd_, POLLRDHUP, 0};
    return ::poll(&now, 1, 0) > 0;
  }
  /// Nothing more will be sent; reading goes on.
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  /// The next frame but pings; none when the other side has closed. Tensors are not understood.
  [[nodiscard]] std::optional<frame> read() {
    // bounded: by the patience of each read
    while (auto f = read_any()) {
      if (f->header.kind != frame_kind::ping) return f;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<frame> read_any() {
    // bounded: by the patience of each read
    while (pending_.size() < header_size) {
      if (!more()) return std::nullopt;
    }
    const auto header = decode_header(
        std::span<const std::byte, header_size>(pending_.data(), header_size), default_limits);
    if (!header) throw rpc_error(header.error());
    if (header->tensors != 0) throw std::runtime_error("raw_peer: a frame with tensors");
    const std::size_t size = header_size + header->payload_bytes + header->table_bytes;
    // bounded: by the patience of each read
    while (pending_.size() < size) {
      if (!more()) return std::nullopt;
    }
    frame f;
    f.header = *header;
    f.head.append(pending_.data(), size);
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(size));
    return f;
  }
  /// All frames until the other side closes.
  [[nodiscard]] std::vector<frame> read_all() {
    std::vector<frame> out;
    // bounded: by the patience of each read, and the watchdog if the other side speaks for ever
    while (auto f = read()) out.push_back(std::move(*f));
    return out;
  }

  /// Reads a piece of whatever comes; 0 when the other side has closed.
  [[nodiscard]] std::size_t read_piece() {
    pending_.clear();
    return more() ? pending_.size() : 0;
  }
  /// Reads whatever comes, tensors too, until the other side closes.
  void hear_out() {
    while (more()) pending_.clear();  // bounded: `more` waits so long at most
  }

  /// As the member `rank` of `all`, speaks to `to`; true if welcomed.
  bool greet(membership all, std::uint32_t rank, std::uint32_t to,
             engine::handshake::purpose what = engine::handshake::purpose::calls) {
    all.rank = rank;
    random_source random = system_random();
    engine::handshake h(all, to, random, what);
    send(h.hello());
    return converse(h) && h.current_state() == engine::handshake::state::accepted;
  }
  /// The same, but says no word more once it is welcomed.
  bool greet_without_ready(membership all, std::uint32_t rank, std::uint32_t to) {
    all.rank = rank;
    random_source random = system_random();
    engine::handshake h(all, to, random);
    send(h.hello());
    // bounded: by the patience of `read`, and a handshake has so many frames
    while (auto f = read()) {
      if (f->header.kind == frame_kind::welcome) return true;
      if (const auto next = h.arrived(std::move(*f))) send(*next);
    }
    return false;
  }
  /// As the member `rank` of `all`, answers a hello and welcomes; false if nobody asked for it.
  bool answer(membership all, std::uint32_t rank) {
    all.rank = rank;
    random_source random = system_random();
    engine::handshake h(all, random);
    if (!converse(h) || h.current_state() != engine::handshake::state::proven) return false;
    return send(h.welcome()) && converse(h) &&
           h.current_state() == engine::handshake::state::accepted;
  }
  /// The refusal that the answer is; success if it is another frame.
  [[nodiscard]] error read_refused() {
    const auto answer = read();
    if (!answer) return error(errc::closed, "no answer");
    return answer->header.kind == frame_kind::refuse ? weft::engine::refusal_in(*answer) : error();
  }

 private:
  bool converse(engine::handshake& h) {
    // bounded: by the patience of `read`
    while (h.current_state() == engine::handshake::state::waiting) {
      auto f = read();
      if (!f) return false;
      if (const auto next = h.arrived(std::move(*f))) send(*next);
    }
    return true;
  }
  void without_delay() {
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const timeval patience{patience_ms / 1000, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  bool more() {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, patience_ms) <= 0) {
      throw std::runtime_error("raw_peer: the other side neither answers nor closes");
    }
    std::byte chunk[16 * 1024];
    const auto got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got <= 0) return false;
    pending_.insert(pending_.end(), chunk, chunk + got);
    return true;
  }

  int fd_;
  byte_string pending_;
};

/// A listening socket on loopback.
class raw_listener {
 public:
  raw_listener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&at), length) != 0 || ::listen(fd_, 64) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
      throw std::runtime_error("raw_listener: cannot listen");
    }
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  raw_listener(const raw_listener&) = delete;
  raw_listener& operator=(const raw_listener&) = delete;
  ~raw_listener() { ::close(fd_); }
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] raw_peer accept() {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, raw_peer::patience_ms) <= 0) {
      throw std::runtime_error("raw_listener: nobody connects");
    }
    return raw_peer(::accept(fd_, nullptr, nullptr));
  }
  /// Nothing once `over` is set.
  [[nodiscard]] std::optional<raw_peer> accept_before(const std::atomic<bool>& over) {
    for (int waited = 0; waited < raw_peer::patience_ms; waited += 10) {
      pollfd wait{fd_, POLLIN, 0};
      if (::poll(&wait, 1, 10) > 0) return raw_peer(::accept(fd_, nullptr, nullptr));
      if (over) return std::nullopt;
    }
    throw std::runtime_error("raw_listener: nobody connects, and it is not over");
  }

 private:
  int fd_;
  std::string endpoint_;
};

}  // namespace weft::testing
