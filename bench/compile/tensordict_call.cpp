// SPDX-License-Identifier: BSL-1.0
// A file with a tensordict and one call.
#include <weft/tensordict/codec.hpp>
#include <weft/weft.hpp>

#include <ATen/ATen.h>

weft::tensordict scale(weft::tensordict td, double by) {
  return td.apply([by](const at::Tensor& t) { return t * by; });
}

asio::awaitable<at::Tensor> ask(weft::peer p, at::Tensor x) {
  const weft::tensordict scaled =
      co_await p.call<&scale>(weft::tensordict({{"x", x}}, {x.size(0)}), 2.0);
  co_return scaled["x"];
}
