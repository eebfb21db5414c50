// SPDX-License-Identifier: BSL-1.0
// A file with one call of a function that is defined elsewhere, and no use of libtorch of its own.
#include <weft/weft.hpp>

at::Tensor scale(at::Tensor x, double by);

asio::awaitable<at::Tensor> ask(weft::peer p, at::Tensor x) {
  co_return co_await p.call<&scale>(x, 2.0);
}
