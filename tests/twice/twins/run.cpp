// SPDX-License-Identifier: BSL-1.0
// A whole run of such a program: nothing of it may begin.
#include "shared.hpp"
#include <weft/run.hpp>

#include <iostream>

void other_file();

static double prepare(double x) { return x + 1; }

namespace {

asio::awaitable<void> main_(weft::worker& me) {
  std::cout << "main began\n";
  co_await me.peer(0).call<&prepare>(10.0);
}

}  // namespace

int main() {
  other_file();
  return weft::run<weft::inproc>(main_, weft::options{.workers = 2});
}
