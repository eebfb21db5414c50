// expect: weft: .*parameter.* a pointer.*means nothing in another process. take a value
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(int id, const char* text);

static_assert(weft::detail::check_declaration<&f>());
