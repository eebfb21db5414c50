// expect: weft: cannot send .*an enum without an underlying type
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>

#include <vector>

enum colour { red, green };
int mix(const std::vector<colour>& all) { return static_cast<int>(all.size()); }

asio::awaitable<int> f(weft::peer p) { co_return co_await p.call<&mix>(std::vector{red}); }
