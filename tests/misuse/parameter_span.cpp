// expect: weft: .*parameter.* a view.*does not own its data. take std::string
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <span>

int f(const std::span<const int>& values);

static_assert(weft::detail::check_declaration<&f>());
