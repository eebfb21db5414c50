// expect: weft: .* has its own weft_encode, but no name that all compilers agree on; name its format by a member .static constexpr std::string_view weft_structure.
// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/peer.hpp>

#include <ratio>

template <class Unit>
struct quantity {
  double value = 0;
  friend void weft_encode(weft::writer& w, const quantity& q) { weft::encode(w, q.value); }
  friend quantity weft_decode(weft::reader& r, std::type_identity<quantity>) {
    return {weft::decode<double>(r)};
  }
};

quantity<std::ratio<1, 1000>> width() { return {}; }

asio::awaitable<double> f(weft::peer p) { co_return (co_await p.call<&width>()).value; }
