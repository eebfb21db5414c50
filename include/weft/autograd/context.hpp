// SPDX-License-Identifier: BSL-1.0
// Autograd contexts: the record of one training step, at this worker and at those that it calls.
//
//   co_await weft::autograd::with_context(me, [&](weft::autograd::context ctx)
//                                                 -> asio::awaitable<void> {
//     auto loss = ...;                       // calls in here are recorded
//     co_await ctx.backward(loss);           // gradients go into the context, .grad is untouched
//     co_await optimizer.step(ctx);
//   });                                      // released everywhere
#pragma once

#include <weft/autograd/options.hpp>
#include <weft/autograd/service.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace weft::autograd {

class context;

/// Opens a context, awaits `body(context)` inside it, and releases it on every worker, also if the
/// body throws or is cancelled. Await it on the worker's thread, where the body runs. It throws the
/// body's errors; cancelling it cancels the body. Contexts do not nest: a second one inside throws
/// invalid_argument. The body's result must be default constructible, or void. One-way calls
/// (`post`) are not recorded. If a coroutine that was spawned in the body makes calls after the
/// body has ended, they fail with autograd_context_gone.
///
/// A tensor belongs to the context that recorded it. `backward` of another context throws
/// invalid_argument for it, here or where the tensor was kept, unless it is detached. Outside any
/// context nothing is recorded. Then a leaf arrives as a leaf, and a computed tensor arrives with a
/// history that only throws and says what to do.
template <class Body>
[[nodiscard]] auto with_context(worker& me, Body body, context_options how = {})
    -> decltype(body(std::declval<context>()));

/// The context of the running coroutine: in `with_context`, and in functions called from there.
/// Such a function can begin passes of its own. Throws autograd_context_gone if there is none.
[[nodiscard]] context this_context(worker& me);

/// A handle to a context that is open here. When the `with_context` that opened it ends, its
/// members throw autograd_context_gone. Cheap to copy; for the worker's thread.
///
///   co_await ctx.backward(loss);
///   at::Tensor g = (co_await ctx.gradients()).find(weight);
class context {
 public:
  context(worker& me, intrusive_ptr<open_context> state) : me_(&me), state_(std::move(state)) {}

  [[nodiscard]] context_id id() const noexcept { return state_->id; }

  /// Runs backward from the roots over all workers that contributed to them. In SMART mode, only
  /// nodes that the roots need run, so unused results cost nothing and never hang. Gradients become
  /// visible everywhere when the whole pass has succeeded. Gradients of several passes add up, and
  /// several passes may run at once over a retained graph. Cancelling ends the pass at all workers.
  /// If others train the parameters meanwhile (Hogwild), their values may be newer than in forward.
  ///
  /// Throws rpc_error: invalid_argument (a root requires no grad, or is no real scalar and has no
  /// gradient given; a tensor belongs to another context, ...), autograd_pass_aborted (names the
  /// worker that failed and its error; no gradient is visible), peer_died (a worker that takes part
  /// was lost, or the run failed; `ran()` is not_sent if no other worker has heard of the pass),
  /// timed_out (in FAST mode it names the messages whose gradients did not come, and their calls),
  /// cancelled, autograd_context_gone.
  [[nodiscard]] asio::awaitable<void> backward(std::vector<at::Tensor> roots,
                                               backward_options how = {}) const;
  [[nodiscard]] asio::awaitable<void> backward(at::Tensor root, backward_options how = {}) const {
    return backward(std::vector<at::Tensor>{std::move(root)}, std::move(how));
  }

  /// The gradients of the roots with respect to `inputs`, as torch::autograd::grad: one per input,
  /// of its shape and dtype. They are returned and not added to the context's. Inputs are tensors
  /// of this worker that require grad, leaves or computed. The gradient is undefined if the roots
  /// do not depend on the input. The input's tensor hooks have run. `how.inputs` is not used.
  /// Errors are those of `backward`.
  ///
  ///   const auto g = co_await ctx.grad(loss, {x}, {.graph = gradient_graph::create});
  ///   co_await ctx.backward(g[0].pow(2).sum());
  [[nodiscard]] asio::awaitable<std::vector<at::Tensor>> grad(std::vector<at::Tensor> roots,
                                                              std::vector<at::Tensor> inputs,
                                                              backward_options how = {}) const;
  [[nodiscard]] asio::awaitable<std::vector<at::Tensor>>
  grad(at::Tensor root, std::vector<at::Tensor> inputs, backward_options how = {}) const {
    return grad(std::vector<at::Tensor>{std::move(root)}, std::move(inputs), std::move(how));
  }

  /// The gradients of this worker's leaves so far. `find(variable)` is an undefined tensor if there
  /// is none. Each gradient has memory of its own, so you may change it in place, for example clip
  /// it. While you hold one, later passes add to another tensor. If passes of other workers ran
  /// here, it waits for their outcome. Cancelling ends only this wait. Throws
  /// autograd_context_gone, timed_out, cancelled, peer_died (the run failed), and
  /// autograd_pass_aborted: memory for adding up a successful pass was short here, or the worker
  /// that began a pass was lost before it told the outcome.
  [[nodiscard]] asio::awaitable<gradient_map> gradients() const {
    return weft::detail::or_die([&] { return me_->use<autograd_service>().gradients(state_); });
  }

  [[nodiscard]] const intrusive_ptr<open_context>& state() const noexcept { return state_; }
  [[nodiscard]] worker& self() const noexcept { return *me_; }

 private:
  worker* me_;
  intrusive_ptr<open_context> state_;
};

}  // namespace weft::autograd

#include <weft/autograd/impl/context.hpp>
