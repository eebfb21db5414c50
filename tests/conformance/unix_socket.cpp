// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/unix_socket.hpp>

#include <conformance/suite.hpp>

TEST_CASE("unix_socket: conforms") { weft::conformance::check<weft::unix_socket>(); }
