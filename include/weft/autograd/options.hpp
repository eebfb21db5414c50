// SPDX-License-Identifier: BSL-1.0
// How contexts and backward passes are run.
//
//   co_await with_context(me, body, {.mode = mode::fast});
//   co_await ctx.backward(loss, {.retention = graph_retention::retain, .limit = 10s});
#pragma once

#include <weft/autograd/types.hpp>
#include <weft/core/time.hpp>

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace weft::autograd {

struct context_options {
  autograd::mode mode = autograd::mode::smart;
};

/// How a backward pass runs.
struct backward_options {
  /// `retain` keeps the tensors that nodes saved, so that another pass can run over the same graph.
  /// None: they are kept if `graph` makes a graph over them.
  std::optional<graph_retention> retention{};
  /// One gradient per root, of its shape and dtype. None: ones, for real roots of one element.
  std::vector<at::Tensor> gradients{};
  /// Limit of the whole pass. None: the worker's call deadline. Never later than the caller's.
  std::optional<duration> limit{};
  /// Leaves of this worker: gradients of these only, as libtorch's `inputs`. Nodes that lead to
  /// none of them and to no other worker do not run; no other worker's leaves get gradients.
  std::vector<at::Tensor> inputs{};
  /// `create`: gradients have a history, over all workers, and passes can begin at them.
  gradient_graph graph = gradient_graph::none;
  /// Steps of optimizers, `sgd.step_at_end()`. They run at their owners once the whole pass has
  /// succeeded, once each, with all gradients of the context, and cost no message of their own
  /// where the pass has been. The pass does not wait for them: see optim::distributed::finish.
  std::vector<riding_step> then{};
};

}  // namespace weft::autograd
