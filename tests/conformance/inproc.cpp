// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/inproc.hpp>

#include <conformance/suite.hpp>

TEST_CASE("inproc: conforms") { weft::conformance::check<weft::inproc>(); }
