// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/optim/lbfgs.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/optim/lbfgs.hpp>
#include <weft/rpc/expose.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace weft::optim {

namespace detail {

/// Of this process: with the trainer's rank, no two steps at an owner have one number.
inline std::atomic<std::uint64_t> last_lbfgs_step{0};

/// Gives a step up, unless it has ended.
struct lbfgs_step_guard {
  const rref<lbfgs_owner>& there;
  std::uint64_t step;
  bool ended = false;
  ~lbfgs_step_guard() {
    if (!ended) there.post<&lbfgs_owner::give_up>(step);
  }
};

inline void expose_lbfgs() noexcept {
  weft::expose<&make_lbfgs>();
  weft::expose<&lbfgs_owner::begin>();
  weft::expose<&lbfgs_owner::go_on>();
  weft::expose<&lbfgs_owner::give_up>();
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
  const rref<detail::lbfgs_owner> there = there_;
  worker& me = *me_;
  detail::lbfgs_step_guard guard{there, std::uint64_t{me.rank()} << 40 | ++detail::last_lbfgs_step};
  detail::lbfgs_answer now = co_await there.call<&detail::lbfgs_owner::begin>(guard.step);
  while (!now.done) {
    now = co_await autograd::with_context(
        me, [&](autograd::context ctx) -> asio::awaitable<detail::lbfgs_answer> {
          const at::Tensor loss = co_await closure(ctx);
          if (!loss.defined() || loss.numel() != 1 || loss.is_complex()) {
            throw rpc_error(errc::invalid_argument,
                            "the closure of LBFGS must return a real tensor of one element");
          }
          co_return co_await there.call<&detail::lbfgs_owner::go_on>(guard.step,
                                                                     loss.item<double>());
        });
  }
  guard.ended = true;
  co_return now.loss;
}

}  // namespace weft::optim
