// expect: weft: .*parameter.* a view.*does not own its data. take std::string
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <string_view>

int f(std::string_view text);

static_assert(weft::detail::check_declaration<&f>());
