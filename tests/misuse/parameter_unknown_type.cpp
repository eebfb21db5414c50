// expect: weft: .*parameter.*cannot be sent: .*it or a part of it.* is no type that weft knows
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <map>
#include <memory>

int f(std::map<int, std::shared_ptr<int>> owners);

static_assert(weft::detail::check_declaration<&f>());
