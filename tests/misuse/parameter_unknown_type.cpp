// expect: weft: .*parameter.*cannot be sent: .*the type of a part of it.* is unknown to weft
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/refusals.hpp>

#include <map>
#include <memory>

int f(std::map<int, std::shared_ptr<int>> owners);

static_assert(weft::detail::check_declaration<&f>());
