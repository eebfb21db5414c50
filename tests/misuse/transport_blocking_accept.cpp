// expect: weft: a transport must provide .*accept\(asio::io_context&\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/tcp.hpp>

struct mine : weft::tcp {
  connection_type accept(asio::io_context& io) { return connection_type(stream_type(io)); }
};

static_assert(weft::assert_transport<mine>());
