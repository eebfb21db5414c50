// SPDX-License-Identifier: BSL-1.0
// Activation checkpointing: a part of the forward pass keeps its inputs only, and is computed again
// in backward.
//
//   at::Tensor y = weft::autograd::checkpoint([&](const auto& in) { return block(in[0]); }, {x});
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::autograd {

using checkpointed = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Returns `function(inputs)` without its graph. Backward calls `function` again, with the same
/// inputs and the same random numbers of the CPU's generator, and goes through the graph that this
/// makes. Gradients of parameters that the function uses go where those of the pass go: into the
/// context, or into `.grad` in a pass of libtorch.
///
/// Every tensor with a history that the function uses must be among the inputs. The function makes
/// no remote calls, and must give the same each time. If it draws random numbers, checkpointed
/// functions of the process take turns, and a pass fails if something else has drawn meanwhile, in
/// forward or in backward. Forward may call it twice. Passes for some `inputs`, and second
/// derivatives (`gradient_graph::create`), fail. As torch.utils.checkpoint with use_reentrant.
[[nodiscard]] std::vector<at::Tensor> checkpoint_all(checkpointed function,
                                                     std::vector<at::Tensor> inputs);

/// The same for a function with one result.
template <class F>
[[nodiscard]] at::Tensor checkpoint(F function, std::vector<at::Tensor> inputs) {
  static_assert(std::is_invocable_r_v<at::Tensor, F&, const std::vector<at::Tensor>&>,
                "a checkpointed function takes a const std::vector<at::Tensor>& and returns an "
                "at::Tensor; if it returns several, call checkpoint_all");
  return checkpoint_all(
      [f = std::move(function)](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{f(in)};
      },
      std::move(inputs))[0];
}

}  // namespace weft::autograd

#include <weft/autograd/impl/checkpoint.hpp>

#include <weft/core/detail/macros_on.hpp>
