// SPDX-License-Identifier: BSL-1.0
// Types that contexts, passes and their messages share.
#pragma once

#include <cstdint>

namespace weft::autograd {

using worker_rank = std::uint32_t;
using context_id = std::uint64_t;
/// Identifies one recorded forward message among those that one worker sent in a context.
using message_id = std::uint64_t;

/// How passes of a context find the messages whose gradients they wait for.
enum class mode : std::uint8_t {
  /// By asking along the graph before it runs. Results that the roots do not use cost nothing.
  smart,
  /// They take all messages of the context as used, as torch.distributed.autograd does. Nothing is
  /// asked. A pass over a result that is not used waits until its deadline.
  fast
};

/// Whether nodes keep the tensors that they saved for backward, so that another pass can use them.
enum class graph_retention : std::uint8_t { release, retain };

/// Whether gradients have a history themselves, over all workers (`create_graph` in libtorch).
enum class gradient_graph : std::uint8_t { none, create };

/// Which leaves get gradients.
enum class leaf_gradients : std::uint8_t {
  all,    ///< all that the roots depend on
  inputs  ///< those that the pass was given, at its initiator
};

/// A step of an optimizer that runs at its owner when a pass has succeeded: what
/// optim::distributed::step_at_end returns for each owner.
struct riding_step {
  worker_rank owner = 0;
  std::uint64_t number = 0;  ///< of the optimizer, at its owner
  friend bool operator==(const riding_step&, const riding_step&) = default;
};

/// What the initiator of a pass decides for all workers.
struct pass_settings {
  constexpr pass_settings(graph_retention r = graph_retention::release,
                          gradient_graph g = gradient_graph::none,
                          leaf_gradients l = leaf_gradients::all) noexcept
      : retention(r), graph(g), leaves(l) {}

  graph_retention retention;
  gradient_graph graph;
  leaf_gradients leaves;
  friend bool operator==(const pass_settings&, const pass_settings&) = default;
};

}  // namespace weft::autograd
