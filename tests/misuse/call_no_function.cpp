// expect: weft: .* give .*address .*\(&f\), or weft::named
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

asio::awaitable<void> use(weft::peer ps) {
  co_await ps.call<[](int x) { return x; }>(2);
}
