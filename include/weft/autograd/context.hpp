// SPDX-License-Identifier: BSL-1.0
// Autograd contexts: what one training step records, here and wherever its calls lead.
//
//   co_await weft::autograd::with_context(me, [&](weft::autograd::context ctx)
//                                                 -> asio::awaitable<void> {
//     auto loss = ...;                       // calls in here are recorded
//     co_await ctx.backward(loss);           // gradients go into the context, .grad is untouched
//     co_await optimizer.step(ctx);
//   });                                      // released everywhere
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

namespace weft::autograd {

class context;

/// Opens a context, awaits `body(context)` inside it, and releases it on every worker, also when
/// the body throws or is cancelled. For the worker's thread, where the body runs. Cancelling it
/// cancels the body, whose errors it throws. Contexts do not nest: a second one throws
/// invalid_argument. What the body returns must be default constructible, or void. One-way calls
/// (`post`) are not recorded. What was spawned in here and still calls after it has ended gets
/// autograd_context_gone.
///
/// Tensors belong to the context that recorded them: `backward` of another one throws
/// invalid_argument, here or where they were kept, until they are detached. Outside of any context
/// nothing is recorded: what was computed elsewhere arrives with a history that only throws, with
/// the remedy in words; what was a leaf there arrives as a leaf.
template <class Body>
[[nodiscard]] auto with_context(worker& me, Body body) -> decltype(body(std::declval<context>()));

/// The context of the running coroutine: in `with_context`, and in functions called from there,
/// which can then begin passes of their own. Throws autograd_context_gone if there is none.
[[nodiscard]] context this_context(worker& me);

/// How a backward pass runs.
///
///   co_await ctx.backward(loss, {.retention = graph_retention::retain, .limit = 10s});
struct backward_options {
  /// Keep what the nodes saved, so that another pass can run over them.
  graph_retention retention = graph_retention::release;
  /// One per root, of its shape and dtype; none: ones, for roots of one element.
  std::vector<at::Tensor> gradients{};
  /// Of the whole pass; none: the worker's call deadline. Never later than the scope's.
  std::optional<duration> limit{};
};

/// Handle of a context that is open here, until the `with_context` that made it ends; then its
/// members throw autograd_context_gone. Cheap to copy; for the worker's thread.
///
///   co_await ctx.backward(loss);
///   at::Tensor g = (co_await ctx.gradients()).find(weight);
class context {
 public:
  context(worker& me, intrusive_ptr<open_context> state) : me_(&me), state_(std::move(state)) {}

  [[nodiscard]] context_id id() const noexcept { return state_->id; }

  /// Runs backward from the roots over all workers that contributed to them (SMART mode: only what
  /// the roots need is asked to run, so unused results cost nothing and never hang). Gradients
  /// become visible everywhere when all of it succeeded; those of several passes add up, and
  /// several may run at once over a retained graph. Cancelling gives the pass up everywhere.
  /// Values of parameters may be newer than in forward if others train them meanwhile (Hogwild).
  /// Throws rpc_error: invalid_argument (a root without grad, not a real scalar, a tensor of
  /// another context, ...), autograd_pass_aborted (names the worker and its error; nothing is
  /// visible), peer_died (a worker that takes part was lost, or the run failed: its `ran()` is
  /// not_sent if nobody has heard of the pass), timed_out, cancelled, autograd_context_gone.
  [[nodiscard]] asio::awaitable<void> backward(std::vector<at::Tensor> roots,
                                               backward_options how = {}) const {
    return weft::detail::or_die([&] {
      return me_->use<autograd_service>().backward(
          state_, std::move(roots), std::move(how.gradients), how.retention, how.limit);
    });
  }
  [[nodiscard]] asio::awaitable<void> backward(at::Tensor root, backward_options how = {}) const {
    return backward(std::vector<at::Tensor>{std::move(root)}, std::move(how));
  }

  /// The gradients of this worker's leaves so far: `find(variable)` is undefined where there is
  /// none. Nothing else lies in a gradient's memory, so it may be changed in place (clipped, say);
  /// a later pass may add to the same tensors in place. Waits for passes of other workers
  /// that ran here until they succeeded or not. Cancelling ends the wait only. Throws
  /// autograd_context_gone, timed_out, cancelled, peer_died (the run failed), autograd_pass_aborted
  /// (a pass succeeded and could not be added up here, for lack of memory, or may have: the worker
  /// that began it was lost before it said so).
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
