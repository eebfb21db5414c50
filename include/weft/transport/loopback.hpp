// SPDX-License-Identifier: BSL-1.0
// The connection from a worker to itself: it reads the frames that it writes.
#pragma once

#include <weft/transport/detail/frame_pipe.hpp>

namespace weft {

/// A `connection` without a transport. A worker's calls to itself take the same path as others.
class loopback : public detail::pipe_connection {
 public:
  explicit loopback(asio::io_context& io) : loopback(io, make_intrusive<detail::frame_pipe>()) {}

 private:
  loopback(asio::io_context& io, const intrusive_ptr<detail::frame_pipe>& pipe)
      : basic_pipe_connection(io, pipe, pipe) {}
};

static_assert(connection<loopback>);

}  // namespace weft
