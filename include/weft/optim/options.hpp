// SPDX-License-Identifier: BSL-1.0
// What weft knows of libtorch's optimizers: the class of their options, and how those travel.
//
// Nothing here needs an optimizer's header (each costs its user seconds): include those you use,
// such as <torch/optim/adam.h>.
#pragma once

#include <weft/rpc/identity.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <string_view>
#include <tuple>

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

namespace detail {

/// lr, betas, eps, weight_decay, amsgrad
struct adam_values {
  using type = std::tuple<double, std::tuple<double, double>, double, double, bool>;
  template <class Options>
  static type of(const Options& o) {
    return {o.lr(), o.betas(), o.eps(), o.weight_decay(), o.amsgrad()};
  }
  template <class Options>
  static Options make(const type& v) {
    return Options(std::get<0>(v))
        .betas(std::get<1>(v))
        .eps(std::get<2>(v))
        .weight_decay(std::get<3>(v))
        .amsgrad(std::get<4>(v));
  }
};

/// lr, momentum, dampening, weight_decay, nesterov
struct sgd_values {
  using type = std::tuple<double, double, double, double, bool>;
  template <class Options>
  static type of(const Options& o) {
    return {o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov()};
  }
  template <class Options>
  static Options make(const type& v) {
    return Options(std::get<0>(v))
        .momentum(std::get<1>(v))
        .dampening(std::get<2>(v))
        .weight_decay(std::get<3>(v))
        .nesterov(std::get<4>(v));
  }
};

/// lr, lr_decay, weight_decay, initial_accumulator_value, eps
struct adagrad_values {
  using type = std::tuple<double, double, double, double, double>;
  template <class Options>
  static type of(const Options& o) {
    return {o.lr(), o.lr_decay(), o.weight_decay(), o.initial_accumulator_value(), o.eps()};
  }
  template <class Options>
  static Options make(const type& v) {
    return Options(std::get<0>(v))
        .lr_decay(std::get<1>(v))
        .weight_decay(std::get<2>(v))
        .initial_accumulator_value(std::get<3>(v))
        .eps(std::get<4>(v));
  }
};

/// lr, alpha, eps, weight_decay, momentum, centered
struct rmsprop_values {
  using type = std::tuple<double, double, double, double, double, bool>;
  template <class Options>
  static type of(const Options& o) {
    return {o.lr(), o.alpha(), o.eps(), o.weight_decay(), o.momentum(), o.centered()};
  }
  template <class Options>
  static Options make(const type& v) {
    return Options(std::get<0>(v))
        .alpha(std::get<1>(v))
        .eps(std::get<2>(v))
        .weight_decay(std::get<3>(v))
        .momentum(std::get<4>(v))
        .centered(std::get<5>(v));
  }
};

/// Options travel as the tuple of their values. They are judged where the optimizer is made.
template <class Options, class Values>
struct options_codec {
  using values = codec<typename Values::type>;
  static constexpr std::size_t min_size = values::min_size;
  static void encode(writer& w, const Options& o) { values::encode(w, Values::of(o)); }
  static Options decode(reader& r) { return Values::template make<Options>(values::decode(r)); }
};

}  // namespace detail
}  // namespace weft::optim

namespace weft {

template <>
struct codec<torch::optim::AdamOptions>
    : optim::detail::options_codec<torch::optim::AdamOptions, optim::detail::adam_values> {};
template <>
struct codec<torch::optim::AdamWOptions>
    : optim::detail::options_codec<torch::optim::AdamWOptions, optim::detail::adam_values> {};
template <>
struct codec<torch::optim::SGDOptions>
    : optim::detail::options_codec<torch::optim::SGDOptions, optim::detail::sgd_values> {};
template <>
struct codec<torch::optim::AdagradOptions>
    : optim::detail::options_codec<torch::optim::AdagradOptions, optim::detail::adagrad_values> {};
template <>
struct codec<torch::optim::RMSpropOptions>
    : optim::detail::options_codec<torch::optim::RMSpropOptions, optim::detail::rmsprop_values> {};

template <>
struct structure<torch::optim::AdamOptions> {
  static constexpr std::string_view tag = "torch::optim::AdamOptions 1";
};
template <>
struct structure<torch::optim::AdamWOptions> {
  static constexpr std::string_view tag = "torch::optim::AdamWOptions 1";
};
template <>
struct structure<torch::optim::SGDOptions> {
  static constexpr std::string_view tag = "torch::optim::SGDOptions 1";
};
template <>
struct structure<torch::optim::AdagradOptions> {
  static constexpr std::string_view tag = "torch::optim::AdagradOptions 1";
};
template <>
struct structure<torch::optim::RMSpropOptions> {
  static constexpr std::string_view tag = "torch::optim::RMSpropOptions 1";
};

}  // namespace weft
