// expect: weft: .*options \(weft::within, weft::as_expected, ...\) come after all arguments
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

double scale(double x, int by);

asio::awaitable<void> use(weft::peer ps) { co_await ps.call<&scale>(2.0, weft::as_expected, 3); }
