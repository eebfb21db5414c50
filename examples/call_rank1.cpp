// SPDX-License-Identifier: BSL-1.0
// Two processes: the first has the second double a tensor. Prints
//
//    2
//    2
//    2
//   [ CPUFloatType{3} ]
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <iostream>
at::Tensor scale(at::Tensor x, double by) { return x * by; }
asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;  // the others serve
  std::cout << co_await me.peer(1).call<&scale>(at::ones({3}), 2.0) << '\n';
}
int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
