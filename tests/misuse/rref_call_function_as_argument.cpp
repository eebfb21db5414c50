// expect: weft: the function is a template argument: call<&f>\(\.\.\.\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/rref.hpp>

struct thing {
  int method(int);
};

asio::awaitable<void> use(weft::rref<thing> r) { co_await r.call(&thing::method, 1); }
