// expect: weft: .* needs an object.*: call it through a weft::rref
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>
#include <weft/rpc/worker.hpp>

struct stage {
  int width() const;
};

asio::awaitable<void> use(weft::peer ps) { co_await ps.call<&stage::width>(); }
