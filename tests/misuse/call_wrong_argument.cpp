// expect: weft: .*argument.* does(n't| not) convert to
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

#include <string>

double scale(double x, int by);

asio::awaitable<void> use(weft::peer ps) { co_await ps.call<&scale>(2.0, std::string("3")); }
