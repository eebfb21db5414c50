// expect: weft: .*a weft::rref.*or, if .* is meant as an argument, take it by
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

#include <vector>

void fill(std::vector<int>& out, int n);

asio::awaitable<void> use(weft::peer ps) { co_await ps.call<&fill>(std::vector<int>(), 3); }
