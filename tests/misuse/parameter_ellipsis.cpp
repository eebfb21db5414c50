// expect: weft: .* C.s \.\.\.,? .*the types of its arguments are unknown
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(int count, ...);

static_assert(weft::detail::check_declaration<&f>());
