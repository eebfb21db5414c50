// expect: weft: .*& as its first parameter.*const T& is an argument
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct stage {
  int width;
};
int width_of(const stage& s);

asio::awaitable<int> use(weft::rref<stage> r) { co_return co_await r.call<&width_of>(); }
