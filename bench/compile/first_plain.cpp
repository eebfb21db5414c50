// SPDX-License-Identifier: BSL-1.0
// examples/call_rank1.cpp without weft: a coroutine of Asio that does the same work in this process.
#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>

#include <ATen/ATen.h>

#include <iostream>
at::Tensor scale(at::Tensor x, double by) { return x * by; }
asio::awaitable<void> main_() {
  std::cout << scale(at::ones({3}), 2.0) << '\n';
  co_return;
}
int main() {
  asio::io_context io;
  asio::co_spawn(io, main_(), asio::detached);
  io.run();
}
