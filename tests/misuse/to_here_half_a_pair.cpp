// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/peer.hpp>

struct path {
  int length = 0;
};
void weft_encode(weft::writer& w, const path& p);

asio::awaitable<path> f(weft::rref<path> r) { co_return co_await r.to_here(); }
