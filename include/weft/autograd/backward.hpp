// SPDX-License-Identifier: BSL-1.0
// A backward pass from a loss that another worker holds.
//
//   weft::rref<at::Tensor> loss = model.remote<&net::loss>(x, y);  // stays where it is
//   co_await weft::autograd::backward(ctx, loss);
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>

namespace weft::autograd {

/// Runs `ctx.backward(root, how)` at the worker that owns the root, in the same context. Waits
/// until the pass has succeeded. The coroutine that awaits it need not be in the context's scope
/// itself, so a context may be handed to a coroutine that was spawned before. `how.inputs` must be
/// empty, for inputs are tensors of the worker where the pass begins.
///
/// Throws the errors of `backward` there, and those of a call. The owner's program must contain
/// this header, too.
[[nodiscard]] asio::awaitable<void> backward(context ctx, rref<at::Tensor> root,
                                             backward_options how = {});

}  // namespace weft::autograd

#include <weft/autograd/impl/backward.hpp>
