// expect: weft: a transport must provide .*name
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/tcp.hpp>

struct mine {
  using connection_type = weft::tcp::connection_type;
};

static_assert(weft::assert_transport<mine>());
