// expect: weft: .*weft::worker& or const weft::caller& must be the first parameter
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(int id, weft::caller& from);

static_assert(weft::detail::check_declaration<&f>());
