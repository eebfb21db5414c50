// SPDX-License-Identifier: BSL-1.0
// TCP sockets. Listens on loopback unless told otherwise.
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/detail/stream_listener.hpp>
#include <weft/transport/framed.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// A `transport`. An endpoint is "127.0.0.1:4711" or "[::1]:4711". It reaches the address that it
/// names. So a worker that listens on loopback gives its endpoint only to workers on its own host.
/// Threads, cancellation and errors are those of the concept (transport/concepts.hpp).
///
///   int main() { return weft::run<weft::tcp>(main_); }
class tcp {
 public:
  static constexpr std::string_view name = "tcp";
  using stream_type = detail::socket_of<asio::ip::tcp>;
  using connection_type = framed<stream_type>;

  struct options {
    std::string address = "127.0.0.1";  ///< of the interface to listen on, no host name
    std::uint16_t port = 0;             ///< 0: the kernel chooses
  };

  tcp() = default;
  explicit tcp(options o) : options_(std::move(o)) {}

  /// Throws rpc_error: invalid_argument if the address is no IP address, is not an address of this
  /// host, or the port is taken.
  [[nodiscard]] std::string listen(asio::io_context& io);

  [[nodiscard]] bool reaches(std::string_view endpoint) const {
    return parse(endpoint).has_value();
  }

  [[nodiscard]] asio::awaitable<connection_type> connect(asio::io_context& io,
                                                         std::string endpoint) {
    return detail::framed_from(connect_stream(io, std::move(endpoint)));
  }
  [[nodiscard]] asio::awaitable<connection_type> accept(asio::io_context& io) {
    return detail::framed_from(accept_stream(io));
  }

  /// As connect and accept, but without frames: for transports that put a layer over this one.
  [[nodiscard]] asio::awaitable<stream_type> connect_stream(asio::io_context& io,
                                                            std::string endpoint) const {
    return connect_to(io.get_executor(), std::move(endpoint));
  }
  [[nodiscard]] asio::awaitable<stream_type> accept_stream(asio::io_context& io) const {
    return accept_from(listener_, io.get_executor());
  }

  void close() noexcept {
    if (listener_) listener_->close();
  }

 private:
  using executor_type = asio::io_context::executor_type;
  using listener = detail::stream_listener<asio::ip::tcp>;

  [[nodiscard]] static std::optional<asio::ip::tcp::endpoint> parse(std::string_view text);

  [[nodiscard]] static stream_type without_delay(stream_type s);

  [[nodiscard]] static asio::awaitable<stream_type> connect_to(executor_type io,
                                                               std::string endpoint);

  [[nodiscard]] static asio::awaitable<stream_type> accept_from(intrusive_ptr<listener> from,
                                                                executor_type io);

  options options_;
  intrusive_ptr<listener> listener_;
};

}  // namespace weft

#include <weft/transport/impl/tcp.hpp>

#include <weft/core/detail/macros_on.hpp>
