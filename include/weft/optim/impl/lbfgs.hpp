// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/optim/lbfgs.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/optim/lbfgs.hpp>
#include <weft/rpc/expose.hpp>

#include <string>
#include <utility>
#include <vector>

namespace weft::optim {

namespace detail {

inline void expose_lbfgs() noexcept {
  weft::expose<&make_lbfgs>();
  weft::expose<&lbfgs_owner::begin>();
  weft::expose<&lbfgs_step::go_on>();
}

template <class Closure>
asio::awaitable<double> lbfgs_steps(worker& me, rref<lbfgs_owner> there, Closure closure) {
  auto begun = co_await there.call<&lbfgs_owner::begin>();
  const rref<lbfgs_step> step = std::move(begun.first);
  lbfgs_answer now = begun.second;
  while (!now.done) {
    now = co_await autograd::with_context(
        me, [&](autograd::context ctx) -> asio::awaitable<lbfgs_answer> {
          const at::Tensor loss = co_await closure(ctx);
          if (!loss.defined() || loss.numel() != 1 || loss.is_complex()) {
            throw rpc_error(errc::invalid_argument,
                            "the closure of LBFGS must return a real tensor of one element");
          }
          co_return co_await step.call<&lbfgs_step::go_on>(loss.item<double>());
        });
  }
  co_return now.loss;
}

}  // namespace detail

inline void lbfgs::expose() noexcept { detail::expose_lbfgs(); }

inline asio::awaitable<lbfgs> lbfgs::create(worker& me, std::vector<rref<at::Tensor>> parameters,
                                            torch::optim::LBFGSOptions options) {
  if (parameters.empty()) {
    throw rpc_error(errc::invalid_argument, "an optimizer needs at least one parameter");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) {
      throw rpc_error(errc::invalid_argument,
                      "parameter " + std::to_string(i) + " is an empty reference");
    }
    if (parameters[i].owner().rank() != parameters[0].owner().rank()) {
      throw rpc_error(errc::invalid_argument,
                      "LBFGS needs all parameters at one worker, and parameter " +
                          std::to_string(i) + " is at '" +
                          std::string(parameters[i].owner().name()) + "', parameter 0 at '" +
                          std::string(parameters[0].owner().name()) + "'");
    }
  }
  const peer owner = parameters[0].owner();
  co_return lbfgs(me, co_await owner.call<&detail::make_lbfgs>(std::move(parameters),
                                                               detail::lbfgs_values::of(options)));
}

template <class Closure>
asio::awaitable<double> lbfgs::step(Closure closure) const {
  return detail::lbfgs_steps(*me_, there_, std::move(closure));
}

}  // namespace weft::optim
