// SPDX-License-Identifier: BSL-1.0
// The transport of examples/custom_transport.hpp is held to the same.
#if __has_include("../../examples/custom_transport.hpp")
#include "../../examples/custom_transport.hpp"

#include <conformance/suite.hpp>

TEST_CASE("custom transport: conforms") { weft::conformance::check<scrambled_tcp>(); }
#endif
