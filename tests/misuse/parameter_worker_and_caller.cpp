// expect: weft: .*only one of weft::worker& and const weft::caller& is injected; take const
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(weft::worker& me, const weft::caller& from, int id);

static_assert(weft::detail::check_declaration<&f>());
