// expect: weft: gather moves the results out.*gather\(std::move\(calls\)\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/gather.hpp>

asio::awaitable<void> use(weft::future<int> a, weft::future<int> b) { co_await weft::gather(a, b); }
