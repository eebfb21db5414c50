// SPDX-License-Identifier: BSL-1.0
// What weft knows of libtorch's optimizers: the class of their options, and how those travel.
//
// Nothing here needs an optimizer's header (each costs its user seconds): include those you use,
// such as <torch/optim/adam.h>.
#pragma once

#include <weft/rpc/identity.hpp>

// NOLINTBEGIN(readability-identifier-naming): libtorch's names
namespace torch::optim {
class Adam;
struct AdamOptions;
class AdamW;
struct AdamWOptions;
class SGD;
struct SGDOptions;
class Adagrad;
struct AdagradOptions;
class RMSprop;
struct RMSpropOptions;
}  // namespace torch::optim
// NOLINTEND(readability-identifier-naming)

namespace weft::optim {

/// Customization: specialise it for an optimizer class of one's own, derived from
/// torch::optim::Optimizer, made from (std::vector<at::Tensor>, options). The options must be
/// encodable; the name must differ from those of other optimizers.
///
///   template <> struct weft::optim::optimizer_traits<my::Lion> {
///     using options = my::LionOptions;
///     static constexpr weft::fixed_string name{"my::Lion"};
///   };
template <class Optimizer>
struct optimizer_traits {};

template <>
struct optimizer_traits<torch::optim::Adam> {
  using options = torch::optim::AdamOptions;
  static constexpr fixed_string name{"Adam"};
};
template <>
struct optimizer_traits<torch::optim::AdamW> {
  using options = torch::optim::AdamWOptions;
  static constexpr fixed_string name{"AdamW"};
};
template <>
struct optimizer_traits<torch::optim::SGD> {
  using options = torch::optim::SGDOptions;
  static constexpr fixed_string name{"SGD"};
};
template <>
struct optimizer_traits<torch::optim::Adagrad> {
  using options = torch::optim::AdagradOptions;
  static constexpr fixed_string name{"Adagrad"};
};
template <>
struct optimizer_traits<torch::optim::RMSprop> {
  using options = torch::optim::RMSpropOptions;
  static constexpr fixed_string name{"RMSprop"};
};

}  // namespace weft::optim

#include <weft/optim/impl/options.hpp>
