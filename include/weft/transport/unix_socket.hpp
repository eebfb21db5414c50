// SPDX-License-Identifier: BSL-1.0
// Unix sockets: for workers of one user on one host. They have Linux's abstract names, so nothing
// is left in the file system, also if the process is killed.
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/detail/host.hpp>
#include <weft/transport/detail/stream_listener.hpp>
#include <weft/transport/framed.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// A `transport`. An endpoint is "unix:<host identity>:<name>". It reaches processes of the same
/// user, in the same network namespace and the same boot. Each side asks the kernel for the user of
/// the other, and closes the connection if it differs. Threads, cancellation and errors are those
/// of the concept (transport/concepts.hpp).
///
///   int main() { return weft::run<weft::unix_socket, weft::tcp>(main_); }
class unix_socket {
 public:
  static constexpr std::string_view name = "unix";
  using stream_type = detail::socket_of<asio::local::stream_protocol>;
  using connection_type = framed<stream_type>;

  /// Throws rpc_error: invalid_argument if the kernel refuses it.
  [[nodiscard]] std::string listen(asio::io_context& io);

  [[nodiscard]] bool reaches(std::string_view endpoint) const;

  [[nodiscard]] asio::awaitable<connection_type> connect(asio::io_context& io,
                                                         std::string endpoint) {
    return detail::framed_from(connect_stream(io, std::move(endpoint)));
  }
  [[nodiscard]] asio::awaitable<connection_type> accept(asio::io_context& io) {
    return detail::framed_from(accept_stream(io));
  }

  /// As connect and accept, but without frames: for transports that put a layer over this one.
  [[nodiscard]] asio::awaitable<stream_type> connect_stream(asio::io_context& io,
                                                            std::string endpoint) const;
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

  [[nodiscard]] static asio::local::stream_protocol::endpoint address(std::string_view unique);

  [[nodiscard]] static bool same_user(stream_type& s) noexcept;

  /// `name_at`: where the name begins in `endpoint`, npos if it is none of ours.
  [[nodiscard]] static asio::awaitable<stream_type>
  connect_to(executor_type io, std::string endpoint, std::size_t name_at);

  [[nodiscard]] static asio::awaitable<stream_type> accept_from(intrusive_ptr<listener> from,
                                                                executor_type io);

  std::string prefix_ = "unix:" + detail::host_identity() + ":";
  intrusive_ptr<listener> listener_;
};

}  // namespace weft

#include <weft/transport/impl/unix_socket.hpp>

#include <weft/core/detail/macros_on.hpp>
