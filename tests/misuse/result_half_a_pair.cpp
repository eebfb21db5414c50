// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>

class path {
 public:
  explicit path(int n) : n_(n) {}

 private:
  int n_;
};
void weft_encode(weft::writer& w, const path& p);

path shortest() { return path(3); }

asio::awaitable<path> f(weft::peer p) { co_return co_await p.call<&shortest>(); }
