// SPDX-License-Identifier: BSL-1.0
// Switches gradient recording for one coroutine. torch::NoGradGuard and similar guards belong to a
// thread: held across co_await, they would affect other coroutines, and be lost on resumption.
#pragma once

#include <weft/rpc/fwd.hpp>

#include <asio/awaitable.hpp>

namespace weft {

enum class grad_mode { off, on };

/// Awaits `work` with gradient recording on or off. This covers `work` and the coroutines that it
/// awaits or spawns on this worker. Functions that it calls at other workers, or on the pool,
/// record as always. If recording is off, their results arrive without history and do not require
/// grad, inside and outside an autograd context. T must be default constructible, or void.
///
///   co_await weft::with_grad_mode(me, weft::grad_mode::off, evaluate(me, batch));
///
/// May be awaited on any executor; `work` runs on the worker's thread. Throws the exceptions of
/// `work`; cancelling cancels `work`.
template <class T>
[[nodiscard]] asio::awaitable<T> with_grad_mode(worker& me, grad_mode mode,
                                                asio::awaitable<T> work);

}  // namespace weft

#include <weft/autograd/impl/grad_mode.hpp>
