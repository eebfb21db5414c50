// SPDX-License-Identifier: BSL-1.0
// lean_call.cpp with the headers of calls and tensors only.
#include <weft/call.hpp>
#include <weft/wire/tensor.hpp>

at::Tensor scale(at::Tensor x, double by);

asio::awaitable<at::Tensor> ask(weft::peer p, at::Tensor x) {
  co_return co_await p.call<&scale>(x, 2.0);
}
