// expect: weft: nobody would see the error in a child's weft::expected; spawn the call without
// SPDX-License-Identifier: BSL-1.0
#include <weft/core/task_group.hpp>

void f(weft::task_group& group, asio::awaitable<weft::expected<int>> call) {
  group.spawn(std::move(call));
}
