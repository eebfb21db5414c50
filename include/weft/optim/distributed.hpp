// SPDX-License-Identifier: BSL-1.0
// Optimizers over parameters of several workers. Each parameter is changed where it lives, by a
// libtorch optimizer there; only calls travel, no gradients and no values.
//
//   distributed<Adam> ──rref──► worker 0: Adam over its parameters
//                     └─rref──► worker 2: Adam over its parameters
#pragma once

#include <weft/autograd/context.hpp>
#include <weft/optim/detail/distributed.hpp>
#include <weft/optim/options.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft::optim {

/// A handle of optimizers at the owners of parameters, such as distributed<torch::optim::Adam>.
/// Copies share them, also at other workers: it can be an argument or result. They live as long as
/// the last copy. Thread safety: one thread at a time for each copy; what it returns is awaited
/// anywhere, as calls are. Cancelling that gives up what has not begun at the owners; a step that
/// computes already is done to its end.
///
/// Several optimizers may work on the same parameters at once, and several trainers may step one
/// optimizer: steps that write the same memory wait for each other, without holding a thread, and
/// none is lost. Forward and backward do not wait for steps, as in Hogwild.
///
/// A parameter whose memory is replaced (torch::load, Module::to, set_data) is followed; if it gets
/// another shape, dtype or device, the next step throws and asks for a new optimizer. Memory is
/// replaced between steps, not during one.
///
///   auto sgd = co_await distributed<SGD>::create(me, parameters, SGDOptions(0.1));
///   co_await sgd.step(ctx);  // in with_context, after ctx.backward(loss)
template <class Optimizer>
class distributed {
  static_assert(detail::check_optimizer<Optimizer>());

 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// Empty: `step` does nothing.
  distributed() = default;

  /// Makes one optimizer at each worker that owns some of the parameters, and waits for all of
  /// them, and for parameters that are still being made. Parameters must be leaves; the optimizer
  /// keeps them alive. The options are those of libtorch, and are checked by it.
  ///
  /// Errors: invalid_argument (no parameters, an empty reference), remote_exception (what the
  /// optimizer's constructor threw), those of a call and of using a reference. If several workers
  /// fail, one error names them all.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<rref<at::Tensor>> parameters, options_type options);
  /// As above, for parameters of this worker.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<at::Tensor> parameters, options_type options);

  /// Steps at all owners in parallel, with the gradients that `ctx` has there, and waits for all.
  /// A parameter without gradient is left as it is. `.grad` is neither read nor written. The call
  /// option `within` may follow.
  ///
  /// Errors: autograd_context_gone (the context was released), remote_exception (what the
  /// optimizer threw), those of a call and of using a reference. If several workers fail, one
  /// error names them all; the others have stepped, and `ran()` is that of all together.
  template <std::same_as<within>... Options>
  [[nodiscard]] asio::awaitable<void> step(autograd::context ctx, Options... options) const {
    return step_all(parts_, std::move(ctx), options...);
  }

  /// How many workers own parameters.
  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }

  /// Makes a program able to own parameters that it does not optimize itself. Effective wherever
  /// compiled in, as weft::expose is.
  static void expose() noexcept;

 private:
  using part = rref<detail::owner_optimizer<Optimizer>>;
  friend struct codec<distributed>;
  friend struct structure<distributed>;

  template <class... Options>
  static asio::awaitable<void> step_all(std::vector<part> parts, autograd::context ctx,
                                        Options... options);
  template <class... Options>
  static asio::awaitable<expected<void>> step_one(part p, Options... options);

  std::vector<part> parts_;  // by the owner's rank
};

/// References to parameters of this worker, such as a module's `parameters()`. Any thread. Throws
/// std::bad_alloc.
[[nodiscard]] std::vector<rref<at::Tensor>> share(worker& me,
                                                  const std::vector<at::Tensor>& tensors);

}  // namespace weft::optim

#include <weft/optim/impl/distributed.hpp>
