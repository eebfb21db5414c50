// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/tcp.hpp>

#include <conformance/suite.hpp>

TEST_CASE("tcp: conforms") { weft::conformance::check<weft::tcp>(); }
