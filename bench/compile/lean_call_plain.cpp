// SPDX-License-Identifier: BSL-1.0
// lean_call.cpp without weft.
#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>

#include <ATen/core/Tensor.h>

at::Tensor scale(at::Tensor x, double by);

asio::awaitable<void> ask(at::Tensor x) {
  scale(x, 2.0);
  co_return;
}

void start(asio::any_io_executor on, at::Tensor x) { asio::co_spawn(on, ask(x), asio::detached); }
