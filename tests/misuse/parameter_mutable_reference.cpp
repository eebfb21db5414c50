// expect: weft: .*parameter.* T?&?.*the caller would not see the changes. take it by value
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

int f(int id, double& total);

static_assert(weft::detail::check_declaration<&f>());
