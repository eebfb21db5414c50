// SPDX-License-Identifier: BSL-1.0
// Optimizers over parameters of several workers. Each parameter is changed where it lives, by a
// libtorch optimizer there; only calls travel, no gradients and no values.
//
//   distributed<Adam> ──rref──► worker 0: Adam over its parameters
//                     └─rref──► worker 2: Adam over its parameters
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/autograd/context.hpp>
#include <weft/optim/detail/distributed.hpp>
#include <weft/optim/detail/optimizer_state.hpp>
#include <weft/optim/options.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace weft::optim {

/// A handle of optimizers at the owners of parameters, such as distributed<torch::optim::Adam>.
/// Copies share them, also at other workers: it can be an argument or result. They live as long as
/// the last copy. Thread safety: one thread at a time for each copy; what it returns is awaited
/// anywhere, as calls are. Cancelling gives up what has not begun at the owners.
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
  /// A parameter without gradient is left as it is. `.grad` is neither read nor written. `within`
  /// and `clip_norm` may follow; a norm that is not finite is invalid_argument, and nobody steps.
  ///
  /// Errors: autograd_context_gone (the context was released), remote_exception (what the
  /// optimizer threw), those of a call and of using a reference. If several workers fail, one
  /// error names them all; the others have stepped, and `ran()` is that of all together.
  template <step_option... Options>
  [[nodiscard]] asio::awaitable<void> step(autograd::context ctx, Options... options) const;
  /// The L2 norm of the gradients that `ctx` has for all parameters at all owners, summed in double
  /// precision. Errors as those of `step`.
  [[nodiscard]] asio::awaitable<double> gradient_norm(autograd::context ctx) const;

  /// Other options at all owners, from the next step on: a schedule of the learning rate, say.
  /// Errors as those of `create`; then some may have them.
  [[nodiscard]] asio::awaitable<void> set_options(options_type options) const;

  /// What the optimizers keep, for a checkpoint: for each owner, by rank, that of its parameters in
  /// the order in which `create` got them. Copies, without the options.
  using state_dict_type = std::vector<std::vector<parameter_state>>;
  [[nodiscard]] asio::awaitable<state_dict_type> state_dict() const;
  /// The way back, into an optimizer over parameters of the same shapes. Errors: invalid_argument
  /// (another number of owners), remote_exception (where it does not fit, nothing has changed).
  [[nodiscard]] asio::awaitable<void> load_state_dict(state_dict_type state) const;

  /// How many workers own parameters.
  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }

  /// Makes a program able to own parameters that it does not optimize itself. Effective wherever
  /// compiled in, as weft::expose is.
  static void expose() noexcept;

 private:
  using part = rref<detail::owner_optimizer<Optimizer>>;
  friend struct codec<distributed>;
  friend struct structure<distributed>;

  std::vector<part> parts_;  // by the owner's rank
};

/// References to parameters of this worker, such as a module's `parameters()`. Any thread.
[[nodiscard]] std::vector<rref<at::Tensor>> share(worker& me,
                                                  const std::vector<at::Tensor>& tensors);

}  // namespace weft::optim

#include <weft/optim/impl/distributed.hpp>

#include <weft/core/detail/macros_on.hpp>
