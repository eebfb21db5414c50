// SPDX-License-Identifier: BSL-1.0
// Gradient recording switched per coroutine. torch::NoGradGuard and its kin are per thread: held
// across co_await they would switch off other coroutines too, and be lost on resumption.
#pragma once

#include <weft/rpc/fwd.hpp>

#include <asio/awaitable.hpp>

namespace weft {

enum class grad_mode { off, on };

/// Awaits `work` with gradient recording on or off, here: `work` and what it awaits or spawns on
/// this worker. Functions that it calls elsewhere (and on the pool) record as they always do; with
/// recording off, their results arrive here without history and do not require grad, inside and
/// outside of an autograd context. T must be default constructible, or void.
///
///   co_await weft::with_grad_mode(me, weft::grad_mode::off, evaluate(me, batch));
///
/// May be awaited on any executor; `work` runs on the worker's thread. Throws what `work` throws;
/// cancelling cancels `work`.
template <class T>
[[nodiscard]] asio::awaitable<T> with_grad_mode(worker& me, grad_mode mode,
                                                asio::awaitable<T> work);

}  // namespace weft

#include <weft/autograd/impl/grad_mode.hpp>
