// expect: weft: this transport is only declared here: include its header
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/concepts.hpp>

class mine;

static_assert(weft::assert_transport<mine>());
