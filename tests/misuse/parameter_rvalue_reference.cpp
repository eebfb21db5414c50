// expect: weft: .*parameter.* rvalue reference.*. take it by value
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <string>

int f(std::string&& text);

static_assert(weft::detail::check_declaration<&f>());
