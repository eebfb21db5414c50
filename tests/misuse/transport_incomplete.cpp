// expect: weft: this transport is only declared here: include its header
// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/concepts.hpp>

namespace weft {
class tcp;
}

static_assert(weft::assert_transport<weft::tcp>());
