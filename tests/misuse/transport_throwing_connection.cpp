// expect: weft: a connection must provide .*close\(\) noexcept
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/tcp.hpp>

struct careless : weft::tcp::connection_type {
  using framed::framed;
  void close() {}
};
struct mine : weft::tcp {
  using connection_type = careless;
};

static_assert(weft::assert_transport<mine>());
