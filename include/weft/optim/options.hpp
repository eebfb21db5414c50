// SPDX-License-Identifier: BSL-1.0
// The optimizers of libtorch that weft knows: the class of their options, and how options are sent.
//
// Nothing here includes an optimizer's header, because each costs seconds of compile time. Include
// the headers that you use, such as <torch/optim/adam.h>.
#pragma once

#include <weft/rpc/call_options.hpp>
#include <weft/rpc/identity.hpp>

#include <concepts>

// NOLINTBEGIN(readability-identifier-naming): libtorch's names
namespace torch::optim {
class Adam;
struct AdamOptions;
struct AdamParamState;
class AdamW;
struct AdamWOptions;
struct AdamWParamState;
class SGD;
struct SGDOptions;
struct SGDParamState;
class Adagrad;
struct AdagradOptions;
struct AdagradParamState;
class RMSprop;
struct RMSpropOptions;
struct RMSpropParamState;
}  // namespace torch::optim
// NOLINTEND(readability-identifier-naming)

namespace weft::optim {

/// Customization: specialise it for your own optimizer class. The class is derived from
/// torch::optim::Optimizer and is made from (std::vector<at::Tensor>, options). The options must be
/// encodable, and the name must differ from those of other optimizers. Only state_dict needs
/// `state` and `parts`: the class of a parameter's state, and its members (tensors and a
/// std::int64_t).
///
///   template <> struct weft::optim::optimizer_traits<my::Lion> {
///     using options = my::LionOptions;
///     static constexpr weft::fixed_string name{"my::Lion"};
///     using state = my::LionParamState;
///     template <class State, class Visit>
///     static void parts(State& s, Visit&& visit) { visit("exp_avg", s.exp_avg()); }
///   };
template <class Optimizer>
struct optimizer_traits {};

template <>
struct optimizer_traits<torch::optim::Adam> {
  using options = torch::optim::AdamOptions;
  static constexpr fixed_string name{"Adam"};
  using state = torch::optim::AdamParamState;
  template <class State, class Visit>
  static void parts(State& s, Visit&& visit) {
    visit("step", s.step());
    visit("exp_avg", s.exp_avg());
    visit("exp_avg_sq", s.exp_avg_sq());
    visit("max_exp_avg_sq", s.max_exp_avg_sq());
  }
};
template <>
struct optimizer_traits<torch::optim::AdamW> : optimizer_traits<torch::optim::Adam> {
  using options = torch::optim::AdamWOptions;
  static constexpr fixed_string name{"AdamW"};
  using state = torch::optim::AdamWParamState;
};
template <>
struct optimizer_traits<torch::optim::SGD> {
  using options = torch::optim::SGDOptions;
  static constexpr fixed_string name{"SGD"};
  using state = torch::optim::SGDParamState;
  template <class State, class Visit>
  static void parts(State& s, Visit&& visit) {
    visit("momentum_buffer", s.momentum_buffer());
  }
};
template <>
struct optimizer_traits<torch::optim::Adagrad> {
  using options = torch::optim::AdagradOptions;
  static constexpr fixed_string name{"Adagrad"};
  using state = torch::optim::AdagradParamState;
  template <class State, class Visit>
  static void parts(State& s, Visit&& visit) {
    visit("step", s.step());
    visit("sum", s.sum());
  }
};
template <>
struct optimizer_traits<torch::optim::RMSprop> {
  using options = torch::optim::RMSpropOptions;
  static constexpr fixed_string name{"RMSprop"};
  using state = torch::optim::RMSpropParamState;
  template <class State, class Visit>
  static void parts(State& s, Visit&& visit) {
    visit("step", s.step());
    visit("square_avg", s.square_avg());
    visit("momentum_buffer", s.momentum_buffer());
    visit("grad_avg", s.grad_avg());
  }
};

/// Option of a step: limits the gradients' L2 norm over all parameters of all owners to `most`.
/// If it is larger, gradients are scaled by `most / (norm + 1e-6)`, as
/// torch::nn::utils::clip_grad_norm_ does.
struct clip_norm {
  double most;
};
template <class Option>
concept step_option = std::same_as<Option, within> || std::same_as<Option, clip_norm>;

}  // namespace weft::optim

#include <weft/optim/impl/options.hpp>
