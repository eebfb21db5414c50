// SPDX-License-Identifier: BSL-1.0
// Server and client in one process: two workers, and one calls a function of the other. Prints
//
//   hello, weft
#include <weft/run.hpp>

#include <iostream>
#include <string>

std::string greet(std::string name) { return "hello, " + name; }

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;  // worker 1 serves until everybody is done
  std::string answer = co_await me.peer(1).call<&greet>("weft");
  std::cout << answer << '\n';
}

int main() { return weft::run<weft::inproc>(main_, weft::options{.workers = 2}); }
