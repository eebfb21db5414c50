// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/transport/unix_socket.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/unix_socket.hpp>

#include <asio/error.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

namespace weft {

inline std::string unix_socket::listen(asio::io_context& io) {
  const std::string unique = "weft-" + detail::random_name();
  listener_ = make_intrusive<listener>(io, address(unique));
  return prefix_ + unique;
}

inline bool unix_socket::reaches(std::string_view endpoint) const {
  return endpoint.starts_with(prefix_) && endpoint.size() > prefix_.size() &&
         endpoint.size() - prefix_.size() <= longest_name;
}

inline asio::awaitable<unix_socket::stream_type>
unix_socket::connect_stream(asio::io_context& io, std::string endpoint) const {
  const std::size_t name_at = reaches(endpoint) ? prefix_.size() : std::string::npos;
  return connect_to(io.get_executor(), std::move(endpoint), name_at);
}

inline asio::local::stream_protocol::endpoint unix_socket::address(std::string_view unique) {
  return {std::string(1, '\0').append(unique)};
}

inline bool unix_socket::same_user(stream_type& s) noexcept {
  ucred other{};
  socklen_t size = sizeof other;
  return ::getsockopt(s.native_handle(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

inline asio::awaitable<unix_socket::stream_type>
unix_socket::connect_to(executor_type io, std::string endpoint, std::size_t name_at) {
  if (name_at == std::string::npos) {
    throw rpc_error(errc::invalid_argument,
                    "not a Unix socket of this user on this host: " + endpoint);
  }
  stream_type s(io);
  std::error_code ec;
  const auto to = address(std::string_view(endpoint).substr(name_at));
  detail::open_unshared(s, to.protocol(), ec);
  if (!ec) co_await s.async_connect(to, asio::redirect_error(asio::use_awaitable, ec));
  if (!ec && !same_user(s)) ec = asio::error::access_denied;
  if (ec) throw detail::cannot_connect(endpoint, ec);
  co_return s;
}

inline asio::awaitable<unix_socket::stream_type>
unix_socket::accept_from(intrusive_ptr<listener> from, executor_type io) {
  if (!from) throw rpc_error(errc::closed, "unix_socket: accept before listen");
  for (;;) {
    stream_type s = co_await listener::accept(from, io);
    if (same_user(s)) co_return s;
  }
}

static_assert(assert_transport<unix_socket>());

}  // namespace weft
