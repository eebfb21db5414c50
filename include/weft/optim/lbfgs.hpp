// SPDX-License-Identifier: BSL-1.0
// libtorch's LBFGS over parameters of another worker. Its steps compute the loss several times, so
// they take a closure: a coroutine of the trainer, in a context of its own each time.
//
//   const auto closure = [&](weft::autograd::context ctx) -> asio::awaitable<at::Tensor> {
//     at::Tensor loss = (co_await model.call<&net::forward>(x) - y).pow(2).mean();
//     co_await ctx.backward(loss);
//     co_return loss;
//   };
//   auto opt = co_await weft::optim::lbfgs::create(me, parameters, LBFGSOptions(1.0));
//   double before = co_await opt.step(closure);
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/autograd/context.hpp>
#include <weft/optim/detail/lbfgs_owner.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/lbfgs.h>

#include <utility>
#include <vector>

namespace weft::optim {

/// A handle to an LBFGS optimizer at the owner of the parameters, as `distributed` is one. Steps
/// that write the same memory, of any optimizer, take turns. A step has a thread at the owner, so
/// simulated worlds cannot run it.
class lbfgs {
 public:
  /// All parameters must have one owner, as LBFGS computes with all gradients at once. Errors:
  /// invalid_argument (no parameters, an empty reference, or several owners), remote_exception (the
  /// optimizer's constructor threw), those of a call.
  [[nodiscard]] static asio::awaitable<lbfgs> create(worker& me,
                                                     std::vector<rref<at::Tensor>> parameters,
                                                     torch::optim::LBFGSOptions options = {});

  /// One step. It awaits `closure(ctx)` as often as the optimizer asks, each time with a new
  /// context, which is released behind it. The closure computes the loss, runs `ctx.backward`, and
  /// returns the loss, a real tensor of one element. Returns the loss of the first time. Await it
  /// where contexts are used, and in none.
  ///
  /// Errors: those of the closure, and of a call. Then the step is given up at the owner, where
  /// parameters stay as the optimizer has left them.
  template <class Closure>
  [[nodiscard]] asio::awaitable<double> step(Closure closure) const;

  /// Lets a program own parameters that it does not optimize itself, as weft::expose does.
  static void expose() noexcept;

 private:
  lbfgs(worker& me, rref<detail::lbfgs_owner> there) : me_(&me), there_(std::move(there)) {}

  worker* me_;
  rref<detail::lbfgs_owner> there_;
};

}  // namespace weft::optim

#include <weft/optim/impl/lbfgs.hpp>

#include <weft/core/detail/macros_on.hpp>
