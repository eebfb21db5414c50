// expect: weft: .*immediate.* runs on the thread that reads requests, so it takes no weft::worker&
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

weft::immediate<int> f(weft::worker& me, int id);

static_assert(weft::detail::check_declaration<&f>());
