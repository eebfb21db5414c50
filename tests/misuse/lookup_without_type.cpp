// expect: weft: lookup needs the type of the object: lookup<T>\("model"\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/rref/published.hpp>

asio::awaitable<void> use(weft::peer p) { auto r = co_await p.lookup("model"); }
