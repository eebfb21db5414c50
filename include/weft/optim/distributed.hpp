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
#include <weft/optim/parameter_group.hpp>
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

/// A handle to optimizers at the owners of parameters, such as distributed<torch::optim::Adam>.
/// Copies share the optimizers, also at other workers: the handle can be an argument or a result.
/// The optimizers live until the last copy is gone. One thread at a time uses one copy. Results are
/// awaited anywhere, as calls are. Cancelling stops work that has not begun at the owners.
///
/// Several optimizers may work on the same parameters at once, and several trainers may step one
/// optimizer. Steps that write the same memory take turns, without holding a thread, and no step is
/// lost. Forward and backward do not wait for steps (Hogwild).
///
/// Replace a parameter's memory (torch::load, Module::to, set_data) only between steps. The
/// optimizer then uses the new memory. If the parameter's shape, dtype, layout or device changes,
/// the next step throws and asks for a new optimizer.
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

  /// Makes one optimizer at each worker that owns some of the parameters. Waits for all of them,
  /// and for parameters that are still being made. Parameters must be leaves; the optimizer keeps
  /// them alive. The options are libtorch's, and libtorch checks them.
  ///
  /// Errors: invalid_argument (no parameters, or an empty reference), remote_exception (the
  /// optimizer's constructor threw), those of a call and of a use of a reference. If several
  /// workers fail, one error names them all.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<rref<at::Tensor>> parameters, options_type options);
  /// As above, for parameters of this worker.
  [[nodiscard]] static asio::awaitable<distributed>
  create(worker& me, std::vector<at::Tensor> parameters, options_type options);
  /// Parameter groups, each with options of its own. They are numbered as given.
  using group_type = parameter_group<Optimizer>;
  [[nodiscard]] static asio::awaitable<distributed> create(worker& me,
                                                           std::vector<group_type> groups);

  /// Steps at all owners in parallel, with the gradients that `ctx` has there, and waits for all.
  /// Parameters without a gradient stay as they are. `.grad` is neither read nor written. `within`
  /// and `clip_norm` may follow. If the norm is not finite, `clip_norm` fails with
  /// invalid_argument, and no owner steps.
  ///
  /// Errors: autograd_context_gone (the context was released), remote_exception (the optimizer
  /// threw), those of a call and of a use of a reference. If several workers fail, one error names
  /// them all; the others have stepped, and `ran()` is that of all together.
  template <step_option... Options>
  [[nodiscard]] asio::awaitable<void> step(autograd::context ctx, Options... options) const;
  /// For backward: `ctx.backward(loss, {.then = sgd.step_at_end()})` steps at all owners when the
  /// whole pass has succeeded, and costs no round trip more. The owners have not stepped when
  /// backward returns. They do so in turn, and forward does not wait for them: `finish` does.
  [[nodiscard]] std::vector<autograd::riding_step> step_at_end() const { return riding_; }
  /// Waits for the steps at the end of passes that have succeeded. Await it at the worker that
  /// began the pass: another one, which heard of the pass otherwise, may be faster than the steps.
  /// Errors: the first of each owner since the last `finish`, as those of `step`.
  [[nodiscard]] asio::awaitable<void> finish() const;
  /// The L2 norm of the gradients that `ctx` has for all parameters at all owners, summed in double
  /// precision. Errors are those of `step`.
  [[nodiscard]] asio::awaitable<double> gradient_norm(autograd::context ctx) const;

  /// Gives all owners new options from the next step on, for example a new learning rate. Errors
  /// are those of `create`; if it fails, some owners may have the new options.
  [[nodiscard]] asio::awaitable<void> set_options(options_type options) const;
  /// The same for one parameter group. remote_exception: there is no such group.
  [[nodiscard]] asio::awaitable<void> set_options(std::size_t group, options_type options) const;
  /// The options of each parameter group.
  [[nodiscard]] asio::awaitable<std::vector<options_type>> options() const;

  /// The state of the optimizers, for a checkpoint: per owner, by rank, the state of its parameters
  /// in the order given to `create`. They are copies, without the options.
  using state_dict_type = std::vector<std::vector<parameter_state>>;
  [[nodiscard]] asio::awaitable<state_dict_type> state_dict() const;
  /// Loads a state into an optimizer over parameters of the same shapes. Errors: invalid_argument
  /// (another number of owners), remote_exception (the state does not fit at an owner, and nothing
  /// has changed there).
  [[nodiscard]] asio::awaitable<void> load_state_dict(state_dict_type state) const;

  /// The number of workers that own parameters.
  [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }

  /// Lets a program own parameters that it does not optimize itself. Takes effect wherever the call
  /// is compiled in, as weft::expose does.
  static void expose() noexcept;

 private:
  using part = rref<detail::owner_optimizer<Optimizer>>;
  friend struct codec<distributed>;
  friend struct structure<distributed>;

  std::vector<part> parts_;  // by the owner's rank
  std::vector<autograd::riding_step> riding_;
};

/// References to parameters of this worker, such as a module's `parameters()`. Any thread.
[[nodiscard]] std::vector<rref<at::Tensor>> share(worker& me,
                                                  const std::vector<at::Tensor>& tensors);

}  // namespace weft::optim

#include <weft/optim/impl/distributed.hpp>

#include <weft/core/detail/macros_on.hpp>
