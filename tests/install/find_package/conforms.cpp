// SPDX-License-Identifier: BSL-1.0
// The test of a transport, as its author has it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <weft/transport/tcp.hpp>

#include <conformance/suite.hpp>

TEST_CASE("tcp: endpoints") { weft::conformance::endpoints<weft::tcp>(); }
