// SPDX-License-Identifier: BSL-1.0
// How the options of libtorch's optimizers travel.
#pragma once

#include <weft/optim/options.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <cstddef>
#include <string_view>
#include <tuple>

namespace weft::optim::detail {

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

}  // namespace weft::optim::detail

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
