// SPDX-License-Identifier: BSL-1.0
// What `framed` does to a stream beyond Asio's async operations: write at once, and close.
#pragma once

#include <weft/transport/arrivals.hpp>
#include <weft/transport/concepts.hpp>

#include <asio/basic_stream_socket.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <system_error>
#include <utility>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace weft::detail {

/// Most buffers that one write gathers.
inline constexpr std::size_t gather_limit = 64;

template <class S>
inline constexpr bool is_socket = false;
template <class Protocol, class Executor>
inline constexpr bool is_socket<asio::basic_stream_socket<Protocol, Executor>> = true;

template <class S>
concept writes_at_once = is_socket<S> || nonblocking_byte_stream<S>;

/// The first gather_limit of `buffers`, as the system takes them; `parts` lives as long.
template <class Buffers>
msghdr message_of(const Buffers& buffers, std::array<iovec, gather_limit>& parts) {
  const std::size_t many = std::min(buffers.size(), parts.size());
  std::transform(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(many),
                 parts.begin(),
                 [](const auto& b) { return iovec{const_cast<void*>(b.data()), b.size()}; });
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = many;
  return message;
}

/// What errno says of an operation that does not wait.
[[nodiscard]] inline std::error_code error_at_once() {
  return errno == EAGAIN ? std::error_code(asio::error::would_block)
                         : std::error_code(errno, std::system_category());
}

/// Any thread. Requires 0 < buffers.size() <= gather_limit.
template <writes_at_once S>
std::size_t write_at_once(S& stream, const_buffer_list buffers, std::error_code& ec) {
  if constexpr (is_socket<S>) {
    ssize_t sent = 0;
    do {
      if (buffers.size() == 1) {
        sent = ::send(stream.native_handle(), buffers[0].data(), buffers[0].size(),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
        continue;
      }
      std::array<iovec, gather_limit> parts;
      const msghdr message = message_of(buffers, parts);
      sent = ::sendmsg(stream.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    ec = error_at_once();
    return 0;
  } else {
    return stream.write_some_nonblocking(buffers, ec);
  }
}

/// What one read without a wait may be done with.
template <class S>
concept reads_at_once =
    is_socket<S> || requires(S& s, mutable_buffer_list to, std::error_code& ec,
                             asio::io_context& io, intrusive_ptr<arrival_ends> ends) {
      { s.read_some_nonblocking(to, ec) } -> std::same_as<std::size_t>;
      { s.move_to(io) } -> std::same_as<bool>;
      { s.announce_to(ends) };
    };

/// Any thread, one at a time. `ec`: would_block, eof.
template <reads_at_once S>
std::size_t read_at_once(S& stream, mutable_buffer_list to, std::error_code& ec) {
  if constexpr (is_socket<S>) {
    ssize_t came = 0;
    do {
      if (to.size() == 1) {
        came = ::recv(stream.native_handle(), to[0].data(), to[0].size(), MSG_DONTWAIT);
        continue;
      }
      std::array<iovec, gather_limit> parts;
      msghdr message = message_of(to, parts);
      came = ::recvmsg(stream.native_handle(), &message, MSG_DONTWAIT);
    } while (came < 0 && errno == EINTR);
    if (came > 0) return static_cast<std::size_t>(came);
    ec = came == 0 ? std::error_code(asio::error::eof) : error_at_once();
    return 0;
  } else {
    return stream.read_some_nonblocking(to, ec);
  }
}

/// The thread of the socket's io_context, while nothing waits in it. False: it stays where it is.
template <class Protocol, class Executor>
[[nodiscard]] bool move_socket(asio::basic_stream_socket<Protocol, Executor>& socket,
                               asio::io_context& io) {
  std::error_code ec;
  const auto at = socket.local_endpoint(ec);
  if (ec) return false;
  const auto handle = socket.release(ec);
  if (ec) return false;
  asio::basic_stream_socket<Protocol, Executor> moved(io.get_executor());
  moved.assign(at.protocol(), handle, ec);
  if (ec) {
    ::close(handle);
    throw rpc_error(errc::closed, "a connection could not change its thread: " + ec.message());
  }
  socket = std::move(moved);
  return true;
}

/// A stream whose lowest layer is a socket, or that is one.
template <class S>
concept over_socket = requires(S& s, std::error_code& ec) {
  { s.lowest_layer().native_handle() } -> std::convertible_to<int>;
  s.lowest_layer().shutdown(asio::socket_base::shutdown_both, ec);
};

/// Any thread: the other side sees the end now, and both waits end, the read after what has
/// already arrived. The descriptor stays.
template <over_socket S>
void shut_down(S& stream) noexcept {
  ::shutdown(stream.lowest_layer().native_handle(), SHUT_RDWR);
}

/// I/O thread.
template <class S>
void close_stream(S& stream) noexcept {
  std::error_code ignored;
  if constexpr (requires { stream.close(ignored); }) {
    stream.close(ignored);
  } else {
    stream.lowest_layer().close(ignored);
  }
}

}  // namespace weft::detail
