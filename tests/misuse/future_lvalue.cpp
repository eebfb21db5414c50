// expect: weft: awaiting a future moves its result out: .*co_await std::move\(f\).*co_await f.copy\(\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/future.hpp>

asio::awaitable<int> use(weft::future<int> f) { co_return co_await f; }
