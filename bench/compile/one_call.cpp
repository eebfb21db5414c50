// SPDX-License-Identifier: BSL-1.0
// A file with one call.
#include <weft/weft.hpp>

#include <ATen/ATen.h>

at::Tensor scale(at::Tensor x, double by) { return x * by; }

asio::awaitable<at::Tensor> ask(weft::peer p, at::Tensor x) {
  co_return co_await p.call<&scale>(x, 2.0);
}
