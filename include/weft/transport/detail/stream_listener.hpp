// SPDX-License-Identifier: BSL-1.0
// The listening end shared by the socket transports: accepts, and outlives shortages. Asio opens
// and accepts sockets that every process inherits which anybody starts, and whose connection then
// outlives ours; these here are close-on-exec from the first moment.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/framed.hpp>

#include <asio/awaitable.hpp>
#include <asio/basic_socket_acceptor.hpp>
#include <asio/basic_stream_socket.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>

#include <sys/socket.h>
#include <unistd.h>

namespace weft::detail {

/// A stream socket on a concrete executor: nothing is type-erased but the coroutine.
template <class Protocol>
using socket_of = asio::basic_stream_socket<Protocol, asio::io_context::executor_type>;

[[nodiscard]] inline rpc_error cannot_connect(const std::string& where,
                                              const std::error_code& why) {
  errc code = errc::peer_died;
  if (why == asio::error::operation_aborted) code = errc::cancelled;
  for (const int lacks : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    if (why == std::error_code(lacks, asio::error::get_system_category())) {
      code = errc::resource_exhausted;
    }
  }
  return rpc_error(error(code, "cannot connect to " + where + ": " + why.message(),
                         call_progress::not_sent, origin::transport));
}

/// Opens the socket or acceptor.
template <class Socket>
void open_unshared(Socket& s, const typename Socket::protocol_type& protocol, std::error_code& ec) {
  const int fd = ::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol());
  if (fd < 0) {
    ec.assign(errno, asio::error::get_system_category());
    return;
  }
  s.assign(protocol, fd, ec);
  if (ec) ::close(fd);
}

/// What was opened as a stream, as a connection.
template <class Stream>
[[nodiscard]] asio::awaitable<framed<Stream>> framed_from(asio::awaitable<Stream> opening) {
  co_return framed<Stream>(co_await std::move(opening));
}

template <class Protocol>
class stream_listener : public ref_counted {
 public:
  using endpoint_type = typename Protocol::endpoint;

  /// Throws rpc_error: invalid_argument if nobody can listen at `at`.
  stream_listener(asio::io_context& io, const endpoint_type& at) : acceptor_(io), pause_(io) {
    std::error_code ec;
    open_unshared(acceptor_, at.protocol(), ec);
    if (!ec) acceptor_.non_blocking(true, ec);
    if (!ec) acceptor_.bind(at, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) endpoint_ = acceptor_.local_endpoint(ec);
    if (ec) throw rpc_error(errc::invalid_argument, "cannot listen: " + ec.message());
  }

  [[nodiscard]] const endpoint_type& endpoint() const noexcept { return endpoint_; }

  /// On the io_context of the acceptor. Waits out a lack of descriptors or memory.
  [[nodiscard]] static asio::awaitable<socket_of<Protocol>>
  accept(intrusive_ptr<stream_listener> self, asio::io_context::executor_type io) {
    for (;;) {
      if (self->closed_) throw rpc_error(errc::closed, "the transport no longer listens");
      std::error_code ec;
      co_await self->acceptor_.async_wait(asio::socket_base::wait_read,
                                          asio::redirect_error(asio::use_awaitable, ec));
      socket_of<Protocol> peer(io);
      if (!ec && self->accept_now(peer, ec)) co_return peer;
      if (self->closed_ || ec == asio::error::would_block ||
          ec == asio::error::connection_aborted) {
        continue;
      }
      if (ec == asio::error::operation_aborted) {
        throw rpc_error(errc::cancelled, "accepting was cancelled");
      }
      self->pause_.expires_after(pause_after_error);
      co_await self->pause_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    }
  }

  /// Any thread, while the io_context lives.
  void close() noexcept {
    if (closed_.exchange(true)) return;
    post_or_die(acceptor_.get_executor(), [self = intrusive_ptr<stream_listener>(this)] {
      std::error_code ignored;
      self->acceptor_.close(ignored);
      self->pause_.cancel();
    });
  }

 private:
  static constexpr std::chrono::milliseconds pause_after_error{50};

  [[nodiscard]] bool accept_now(socket_of<Protocol>& peer, std::error_code& ec) {
    const int fd = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      ec.assign(errno, asio::error::get_system_category());
      return false;
    }
    peer.assign(endpoint_.protocol(), fd, ec);
    if (ec) ::close(fd);
    return !ec;
  }

  asio::basic_socket_acceptor<Protocol, asio::io_context::executor_type> acceptor_;
  asio::steady_timer pause_;
  endpoint_type endpoint_;
  std::atomic<bool> closed_{false};
};

}  // namespace weft::detail
