// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/transport/tcp.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/tcp.hpp>

#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace weft {

inline std::string tcp::listen(asio::io_context& io) {
  std::error_code ec;
  const auto address = asio::ip::make_address(options_.address, ec);
  if (ec) throw rpc_error(errc::invalid_argument, "not an IP address: " + options_.address);
  listener_ = make_intrusive<listener>(io, asio::ip::tcp::endpoint(address, options_.port));
  const auto& at = listener_->endpoint();
  const auto text = at.address().to_string();
  return (at.address().is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(at.port());
}

inline std::optional<asio::ip::tcp::endpoint> tcp::parse(std::string_view text) {
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

inline tcp::stream_type tcp::without_delay(stream_type s) {
  std::error_code ignored;  // a peer that is gone already shows at the first read
  s.set_option(asio::ip::tcp::no_delay(true), ignored);
  return s;
}

inline asio::awaitable<tcp::stream_type> tcp::connect_to(executor_type io, std::string endpoint) {
  const auto to = parse(endpoint);
  if (!to) throw rpc_error(errc::invalid_argument, "not a TCP endpoint: " + endpoint);
  stream_type s(io);
  std::error_code ec;
  detail::open_unshared(s, to->protocol(), ec);
  if (!ec) co_await s.async_connect(*to, asio::redirect_error(asio::use_awaitable, ec));
  // A port that nobody listens on may be the one that the kernel gave to this very socket.
  if (!ec && s.local_endpoint(ec) == *to && !ec) ec = asio::error::connection_refused;
  if (ec) throw detail::cannot_connect(endpoint, ec);
  co_return without_delay(std::move(s));
}

inline asio::awaitable<tcp::stream_type> tcp::accept_from(intrusive_ptr<listener> from,
                                                          executor_type io) {
  if (!from) throw rpc_error(errc::closed, "tcp: accept before listen");
  stream_type s = co_await listener::accept(std::move(from), io);
  co_return without_delay(std::move(s));
}

static_assert(assert_transport<tcp>());

}  // namespace weft
