// SPDX-License-Identifier: BSL-1.0
// TCP sockets. Listens on loopback unless told otherwise.
#pragma once

#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/stream_listener.hpp>
#include <weft/transport/framed.hpp>

#include <asio/ip/tcp.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// A `transport`. An endpoint is "127.0.0.1:4711" or "[::1]:4711"; it reaches whoever is named, so
/// a worker that listens on loopback tells its endpoint only to workers on its own host.
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

  /// Throws rpc_error: invalid_argument if the address is none of this host's.
  [[nodiscard]] std::string listen(asio::io_context& io) {
    std::error_code ec;
    const auto address = asio::ip::make_address(options_.address, ec);
    if (ec) throw rpc_error(errc::invalid_argument, "no IP address: " + options_.address);
    listener_ = make_intrusive<listener>(io, asio::ip::tcp::endpoint(address, options_.port));
    const auto& at = listener_->endpoint();
    const auto text = at.address().to_string();
    return (at.address().is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(at.port());
  }

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

  /// As connect and accept, before framing: for transports that put a layer upon this one.
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

  [[nodiscard]] static std::optional<asio::ip::tcp::endpoint> parse(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    auto host = text.substr(0, colon);
    const auto port = text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    std::uint16_t number = 0;
    const char* const begin = port.data();
    const char* const end = begin + port.size();
    const auto [stop, problem] = std::from_chars(begin, end, number);
    std::error_code ec;
    const auto address = asio::ip::make_address(host, ec);
    if (problem != std::errc{} || stop != end || number == 0 || ec) return std::nullopt;
    return asio::ip::tcp::endpoint(address, number);
  }

  [[nodiscard]] static stream_type without_delay(stream_type s) {
    std::error_code ignored;  // a peer that is gone already shows at the first read
    s.set_option(asio::ip::tcp::no_delay(true), ignored);
    return s;
  }

  [[nodiscard]] static asio::awaitable<stream_type> connect_to(executor_type io,
                                                               std::string endpoint) {
    const auto to = parse(endpoint);
    if (!to) throw rpc_error(errc::invalid_argument, "no TCP endpoint: " + endpoint);
    stream_type s(io);
    std::error_code ec;
    co_await s.async_connect(*to, asio::redirect_error(asio::use_awaitable, ec));
    // A port that nobody listens on may be the one that the kernel gave to this very socket.
    if (!ec && s.local_endpoint(ec) == *to && !ec) ec = asio::error::connection_refused;
    if (ec) throw detail::cannot_connect(endpoint, ec);
    co_return without_delay(std::move(s));
  }

  [[nodiscard]] static asio::awaitable<stream_type> accept_from(intrusive_ptr<listener> from,
                                                                executor_type io) {
    if (!from) throw rpc_error(errc::closed, "tcp: accept before listen");
    stream_type s = co_await listener::accept(std::move(from), io);
    co_return without_delay(std::move(s));
  }

  options options_;
  intrusive_ptr<listener> listener_;
};

static_assert(assert_transport<tcp>());

}  // namespace weft
