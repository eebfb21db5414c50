// SPDX-License-Identifier: BSL-1.0
// Two processes that talk over the transport of custom_transport.hpp. Prints
//
//   6 over scrambled
#include "custom_transport.hpp"

#include <weft/run.hpp>

#include <iostream>

int twice(int x) { return 2 * x; }

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  auto other = me.peer(1);
  int six = co_await other.call<&twice>(3);
  std::cout << six << " over " << other.transport() << '\n';
}

int main() { return weft::run<scrambled_tcp>(main_, weft::options{.workers = 2}); }
