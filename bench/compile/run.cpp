// SPDX-License-Identifier: BSL-1.0
// The file that names run<...>.
#include <weft/run.hpp>

#include <ATen/ATen.h>

at::Tensor scale(at::Tensor x, double by) { return x * by; }

asio::awaitable<void> job(weft::worker& me) {
  if (me.rank() != 0) co_return;
  co_await me.peer(1).call<&scale>(at::ones({3}), 2.0);
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(job); }
