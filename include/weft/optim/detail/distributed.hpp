// SPDX-License-Identifier: BSL-1.0
// Which optimizers can be distributed, and a sentence for each that cannot.
#pragma once

#include <weft/optim/options.hpp>
#include <weft/rpc/call_options.hpp>

#include <torch/optim/optimizer.h>

#include <concepts>
#include <optional>

namespace weft::optim::detail {

struct step_settings {
  std::optional<within> limit;
  std::optional<clip_norm> clip;

  template <step_option... Options>
  explicit step_settings(Options... options) {
    (set(options), ...);
  }
  void set(within w) noexcept { limit = w; }
  void set(clip_norm c) noexcept { clip = c; }
};

/// What lives at an owner of parameters.
template <class Optimizer>
class owner_optimizer;

template <class Optimizer>
inline constexpr bool header_is_included = requires { sizeof(Optimizer); };
template <class Optimizer>
inline constexpr bool is_libtorch_optimizer = std::derived_from<Optimizer, torch::optim::Optimizer>;
template <class Optimizer>
inline constexpr bool step_takes_no_closure = requires(Optimizer& o) { o.step(); };
template <class Optimizer>
inline constexpr bool options_are_known =
    requires { typename optimizer_traits<Optimizer>::options; };

template <class Optimizer>
consteval bool check_optimizer() {
  if constexpr (!header_is_included<Optimizer>) {
    static_assert(header_is_included<Optimizer>,
                  "weft: this optimizer is only declared; include its header, such as "
                  "<torch/optim/adam.h>.");
  } else if constexpr (!is_libtorch_optimizer<Optimizer>) {
    static_assert(is_libtorch_optimizer<Optimizer>,
                  "weft: optim::distributed needs an optimizer that is derived from "
                  "torch::optim::Optimizer.");
  } else if constexpr (!step_takes_no_closure<Optimizer>) {
    static_assert(
        step_takes_no_closure<Optimizer>,
        "weft: this optimizer's step calls a closure that computes the loss anew, and a "
        "closure cannot be sent to other workers; use weft::optim::lbfgs for LBFGS, or an "
        "optimizer whose step takes none (Adam, AdamW, SGD, Adagrad, RMSprop).");
  } else {
    static_assert(options_are_known<Optimizer>,
                  "weft: weft does not know this optimizer's options; specialise "
                  "weft::optim::optimizer_traits for it.");
  }
  return true;
}

}  // namespace weft::optim::detail
