// expect: weft: .* has weft_encode or weft_decode, but not both, .* next to the type T. void weft_encode
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>

struct path {
  int length = 0;
};
void weft_encode(weft::writer& w, const path& p);

template <class T>
struct queue {
  std::vector<T> all;
  friend void weft_encode(weft::writer& w, const queue& q) {
    weft::encode(w, static_cast<int>(q.all.size()));
  }
  friend queue weft_decode(weft::reader& r, std::type_identity<queue>) {
    return {std::vector<T>(static_cast<std::size_t>(weft::decode<int>(r)))};
  }
};

int measure(const queue<path>& q) { return static_cast<int>(q.all.size()); }

asio::awaitable<int> f(weft::peer p) { co_return co_await p.call<&measure>(queue<path>()); }
