// expect: weft: gather moves the results out.*gather\(std::move\(calls\)\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/gather.hpp>

asio::awaitable<void> use(std::vector<weft::future<int>> all) { co_await weft::gather(all); }
