// expect: weft: first moves the results out.*first\(k, std::move\(futures\)\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/gather.hpp>

asio::awaitable<void> use(std::vector<weft::future<int>> all) { co_await weft::first(2, all); }
