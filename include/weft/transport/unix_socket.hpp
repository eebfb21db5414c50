// SPDX-License-Identifier: BSL-1.0
// Unix sockets: workers of one user on one host. Linux's abstract names, so that nothing is left
// behind in the file system, whatever happens to the process.
#pragma once

#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/host.hpp>
#include <weft/transport/detail/stream_listener.hpp>
#include <weft/transport/framed.hpp>

#include <asio/local/stream_protocol.hpp>

#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

namespace weft {

/// A `transport`. An endpoint is "unix:<host identity>:<name>"; it reaches processes of the same
/// user in the same network namespace of the same boot. Both sides ask the kernel who the other
/// is, and close the connection if it is another user.
class unix_socket {
 public:
  static constexpr std::string_view name = "unix";
  using stream_type = detail::socket_of<asio::local::stream_protocol>;
  using connection_type = framed<stream_type>;

  [[nodiscard]] std::string listen(asio::io_context& io) {
    const std::string unique = "weft-" + detail::random_name();
    listener_ = make_intrusive<listener>(io, address(unique));
    return prefix_ + unique;
  }

  [[nodiscard]] bool reaches(std::string_view endpoint) const {
    return endpoint.starts_with(prefix_) && endpoint.size() > prefix_.size() &&
           endpoint.size() - prefix_.size() <= longest_name;
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
    const std::size_t name_at = reaches(endpoint) ? prefix_.size() : std::string::npos;
    return connect_to(io.get_executor(), std::move(endpoint), name_at);
  }
  [[nodiscard]] asio::awaitable<stream_type> accept_stream(asio::io_context& io) const {
    return accept_from(listener_, io.get_executor());
  }

  void close() noexcept {
    if (listener_) listener_->close();
  }

 private:
  using executor_type = asio::io_context::executor_type;
  using listener = detail::stream_listener<asio::local::stream_protocol>;
  static constexpr std::size_t longest_name = 100;  // of the 107 that the kernel has

  [[nodiscard]] static asio::local::stream_protocol::endpoint address(std::string_view unique) {
    return {std::string(1, '\0').append(unique)};
  }

  [[nodiscard]] static bool same_user(stream_type& s) noexcept {
    ucred other{};
    socklen_t size = sizeof other;
    return ::getsockopt(s.native_handle(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
           other.uid == ::geteuid();
  }

  /// `name_at`: where the name begins in `endpoint`, npos if it is none of ours.
  [[nodiscard]] static asio::awaitable<stream_type>
  connect_to(executor_type io, std::string endpoint, std::size_t name_at) {
    if (name_at == std::string::npos) {
      throw rpc_error(errc::invalid_argument, "no Unix socket of this user here: " + endpoint);
    }
    stream_type s(io);
    std::error_code ec;
    co_await s.async_connect(address(std::string_view(endpoint).substr(name_at)),
                             asio::redirect_error(asio::use_awaitable, ec));
    if (!ec && !same_user(s)) ec = asio::error::access_denied;
    if (ec) throw detail::cannot_connect(endpoint, ec);
    co_return s;
  }

  [[nodiscard]] static asio::awaitable<stream_type> accept_from(intrusive_ptr<listener> from,
                                                                executor_type io) {
    if (!from) throw rpc_error(errc::closed, "unix_socket: accept before listen");
    for (;;) {
      stream_type s = co_await listener::accept(from, io);
      if (same_user(s)) co_return s;
    }
  }

  std::string prefix_ = "unix:" + detail::host_identity() + ":";
  intrusive_ptr<listener> listener_;
};

static_assert(assert_transport<unix_socket>());

}  // namespace weft
