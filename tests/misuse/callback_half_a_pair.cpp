// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/callback.hpp>
#include <weft/rref/peer.hpp>

#include <utility>

struct path {
  int length = 0;
};
void weft_encode(weft::writer& w, const path& p);

void walk(weft::callback<void(path)> told) { told.post(path()); }

asio::awaitable<void> f(weft::peer p, weft::callback<void(path)> told) {
  co_await p.call<&walk>(std::move(told));
}
