// SPDX-License-Identifier: BSL-1.0
// The part of a distributed optimizer that lives where parameters live.
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/event.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/linkage.hpp>
#include <weft/optim/detail/aliased_optimizer.hpp>
#include <weft/optim/detail/optimizer_state.hpp>
#include <weft/optim/detail/riding_steps.hpp>
#include <weft/optim/options.hpp>
#include <weft/rref/peer.hpp>

#include <asio/awaitable.hpp>
#include <asio/use_awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::optim::detail {

/// Throws if the running call has none.
inline autograd_service::context_ptr context_of_call() {
  auto context = autograd_service::current();
  if (!context) {
    throw rpc_error(errc::autograd_context_gone, "a step needs an open autograd context",
                    call_progress::not_executed);
  }
  return context;
}

template <class Optimizer>
class owner_optimizer {
 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// Throws what the optimizer's constructor throws, and std::invalid_argument for parameters that
  /// are undefined, not leaves, or given twice.
  owner_optimizer(std::vector<at::Tensor> parameters, std::vector<std::size_t> sizes,
                  const std::vector<options_type>& options)
      : here_(std::make_shared<aliased_optimizer<Optimizer>>(
            checked_parameters(std::move(parameters)), std::move(sizes), options)) {}

  /// Applies the gradients that the running call's autograd context has for the parameters here.
  /// Computes on this thread, one of the compute pool: the way of most steps, without the worker's
  /// thread. False, and nothing was done, if a pass that ran here may have succeeded without this
  /// worker knowing yet: await `settled`. Nothing at all, also if a step that writes some of the
  /// same memory, of whatever optimizer, is under way or waits: call `step_in_turn`.
  std::optional<bool> step(worker& me, double scale) {
    const auto context = context_of_call();
    const auto turn = make_intrusive<write_turn>(here_->memory());
    if (!turn->granted->is_set()) return std::nullopt;
    const auto gradients = me.use<autograd_service>().gradients_now(context);
    if (!gradients) return false;
    here_->step(*gradients, scale);
    return true;
  }

  /// As `step`, when all steps that came before and write the same memory have ended; waits for
  /// them without a thread. Given up while it waits it does nothing; once it computes it is done to
  /// its end.
  asio::awaitable<bool> step_in_turn(worker& me, double scale) {
    const auto context = context_of_call();
    if (!me.use<autograd_service>().gradients_now(context)) co_return false;
    auto turn = make_intrusive<write_turn>(here_->memory());
    co_await event::wait(turn->granted);
    auto gradients = me.use<autograd_service>().gradients_now(context);
    if (!gradients) co_return false;

    co_await step_on(me.compute_pool(), here_, std::move(*gradients), scale, std::move(turn));
    co_return true;
  }

  /// Returns when `step` knows what became of every pass that has run here.
  asio::awaitable<void> settled(worker& me) {
    co_await me.use<autograd_service>().gradients(context_of_call());
  }

  /// Of what `step` would apply now, once the outcome of every pass that has run here is known.
  asio::awaitable<double> gradient_norm(worker& me) {
    auto gradients = co_await me.use<autograd_service>().gradients(context_of_call());
    co_return co_await on_pool(
        [here = here_](const autograd::gradient_map& all) { return here->gradient_norm(all); },
        std::move(gradients));
  }

  /// The number by which passes name its riding steps.
  [[nodiscard]] std::uint64_t ride(worker& me) {
    riding_ = std::make_shared<riding_steps<Optimizer>>(me, here_);
    return me.use<autograd_service>().follow(riding_);
  }
  asio::awaitable<void> finish() { co_await riding_steps<Optimizer>::finish(riding_); }

  // Between steps, in turn with them.
  asio::awaitable<void> set_options(std::optional<std::uint64_t> group, options_type options) {
    const auto turn = co_await my_turn();
    here_->set_options(group, options);
  }
  asio::awaitable<std::vector<options_type>> options() {
    const auto turn = co_await my_turn();
    co_return here_->options();
  }
  asio::awaitable<std::vector<parameter_state>> state() {
    const auto turn = co_await my_turn();
    co_return co_await on_pool([here = here_, turn] { return here->state(); });
  }
  asio::awaitable<void> set_state(std::vector<parameter_state> given) {
    const auto turn = co_await my_turn();
    co_await on_pool([here = here_, turn](const auto& all) { here->set_state(all); },
                     std::move(given));
  }

 private:
  asio::awaitable<intrusive_ptr<write_turn>> my_turn() {
    auto turn = make_intrusive<write_turn>(here_->memory());
    co_await event::wait(turn->granted);
    co_return turn;
  }
  std::shared_ptr<aliased_optimizer<Optimizer>> here_;
  std::shared_ptr<riding_steps<Optimizer>> riding_;
};

/// Called on a reference: returns when its object is made, or throws why it was not.
WEFT_PROCESS_WIDE inline immediate<void> await_parameter(at::Tensor&) { return {}; }

/// The parameters, at their owner, once they are made.
inline asio::awaitable<std::vector<at::Tensor>>
parameters_behind(std::vector<rref<at::Tensor>> references) {
  std::vector<at::Tensor> here;
  for (const rref<at::Tensor>& p : references) {
    co_await p.call<&await_parameter>();
    here.push_back(*p.local());
  }
  co_return here;
}

/// What `distributed::create` calls at each owner.
template <class Optimizer>
WEFT_PROCESS_WIDE asio::awaitable<std::pair<rref<owner_optimizer<Optimizer>>, std::uint64_t>>
make_owner_optimizer(worker& me, std::vector<std::vector<rref<at::Tensor>>> groups,
                     std::vector<typename optimizer_traits<Optimizer>::options> options) {
  if (groups.empty() || groups.size() != options.size()) {
    throw std::invalid_argument("an optimizer needs options for each of its parameter groups");
  }
  std::vector<at::Tensor> here;
  std::vector<std::size_t> sizes;
  for (auto& parameters : groups) {
    sizes.push_back(parameters.size());
    const auto some = co_await parameters_behind(std::move(parameters));
    here.insert(here.end(), some.begin(), some.end());
  }
  owner_optimizer<Optimizer> made(std::move(here), std::move(sizes), options);
  const std::uint64_t number = made.ride(me);
  co_return std::pair(me.share(std::move(made)), number);
}

/// "weft::optim::step/SGD", of "step" and what the optimizer's traits call it.
template <class Optimizer, std::size_t A>
consteval auto name_of(const char (&verb)[A]) {
  constexpr std::string_view before = "weft::optim::";
  constexpr fixed_string optimizer = optimizer_traits<Optimizer>::name;
  char text[before.size() + A + sizeof(optimizer.text)] = {};
  char* at = std::copy(before.begin(), before.end(), text);
  at = std::copy(verb, verb + A - 1, at);
  *at++ = '/';
  std::copy(std::begin(optimizer.text), std::end(optimizer.text), at);
  return fixed_string(text);
}

template <class Optimizer>
inline constexpr auto make_function =
    named<name_of<Optimizer>("create"), &make_owner_optimizer<Optimizer>>;
template <class Optimizer>
inline constexpr auto step_function =
    named<name_of<Optimizer>("step"), &owner_optimizer<Optimizer>::step>;
template <class Optimizer>
inline constexpr auto step_in_turn_function =
    named<name_of<Optimizer>("step_in_turn"), &owner_optimizer<Optimizer>::step_in_turn>;
template <class Optimizer>
inline constexpr auto settled_function =
    named<name_of<Optimizer>("settled"), &owner_optimizer<Optimizer>::settled>;
template <class Optimizer>
inline constexpr auto gradient_norm_function =
    named<name_of<Optimizer>("gradient_norm"), &owner_optimizer<Optimizer>::gradient_norm>;
template <class Optimizer>
inline constexpr auto set_options_function =
    named<name_of<Optimizer>("set_options"), &owner_optimizer<Optimizer>::set_options>;
template <class Optimizer>
inline constexpr auto finish_function =
    named<name_of<Optimizer>("finish"), &owner_optimizer<Optimizer>::finish>;
template <class Optimizer>
inline constexpr auto options_function =
    named<name_of<Optimizer>("options"), &owner_optimizer<Optimizer>::options>;
template <class Optimizer>
inline constexpr auto state_function =
    named<name_of<Optimizer>("state"), &owner_optimizer<Optimizer>::state>;
template <class Optimizer>
inline constexpr auto set_state_function =
    named<name_of<Optimizer>("set_state"), &owner_optimizer<Optimizer>::set_state>;

}  // namespace weft::optim::detail
