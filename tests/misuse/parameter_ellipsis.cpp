// expect: weft: .* C.s \.\.\.,? .*nothing says what it is given
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(int count, ...);

static_assert(weft::detail::check_declaration<&f>());
