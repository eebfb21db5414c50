// expect: weft: .*(takes 2 arguments, 1 given|gives another number of arguments)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

double scale(double x, int by);

asio::awaitable<void> use(weft::peer ps) {
  co_await ps.call<&scale>(2.0, weft::within(std::chrono::seconds(1)));
}
