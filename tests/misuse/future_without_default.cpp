// expect: weft: .*co_await std::move\(f\) needs a T that can be default constructed.*std::move\(f\)\.get\(\)
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/future.hpp>

struct stage {
  explicit stage(int width);
};

asio::awaitable<void> use(weft::future<stage> f) { co_await std::move(f); }
