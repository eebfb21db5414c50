// SPDX-License-Identifier: BSL-1.0
// Parameters and buffers of a torch::nn::Module as a tensordict.
//
//   weft::tensordict saved = weft::from_module(*net).clone();
//   {
//     auto swapped = weft::to_module(averaged, *net);    // until the end of the block
//     evaluate(*net);
//   }
#pragma once

#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace weft {

/// Has the parameters and buffers of `module` and of its submodules, nested by their names; batch
/// size []. Its tensors are in the memory of the module's, and require no gradients: what is
/// written into them is in the module, and what an optimizer writes into the module is in them.
/// Locked. An undefined one has no entry.
[[nodiscard]] tensordict from_module(const torch::nn::Module& module);

/// Gives a module its own tensors back at its end, in the reverse order if there are several.
class module_swap {
 public:
  module_swap(module_swap&& other) noexcept : before_(std::exchange(other.before_, {})) {}
  module_swap(const module_swap&) = delete;
  module_swap& operator=(const module_swap&) = delete;
  ~module_swap() { restore(); }
  /// Now.
  void restore() noexcept;

 private:
  friend module_swap to_module(const tensordict& td, torch::nn::Module& module);
  module_swap() = default;
  /// The module's own handle, and another of its memory.
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

/// Puts the tensors of `td` into the parameters and buffers of those names, without copying, as
/// long as the result lives; the module's others stay. Parameters stay the module's: gradients are
/// theirs, not those of `td`'s tensors (so this is not for gradients through an update, as in
/// MAML). Checks all before it changes anything: throws `no_key` for a name that the module lacks,
/// `shape` for other sizes, `kind` for another dtype or device. No other thread uses the module
/// meanwhile.
[[nodiscard]] module_swap to_module(const tensordict& td, torch::nn::Module& module);

/// Copies the values of `td` into the parameters and buffers of those names (copy_: converts
/// dtypes). Checks names and sizes before: throws `no_key` also for a parameter or buffer that `td`
/// lacks, but with all_names::no.
enum class all_names : bool { no, yes };
void load_into(torch::nn::Module& module, const tensordict& td, all_names all = all_names::yes);

}  // namespace weft

#include <weft/tensordict/impl/module.hpp>
