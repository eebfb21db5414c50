// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>

#include <string_view>

struct price {
  int cents = 0;
  static constexpr std::string_view weft_structure = "price 2";
};
void weft_encode(weft::writer& w, const price& p);

int cents_of(price p) { return p.cents; }

asio::awaitable<int> f(weft::peer p) { co_return co_await p.call<&cents_of>(price()); }
