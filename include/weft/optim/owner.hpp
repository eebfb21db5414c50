// SPDX-License-Identifier: BSL-1.0
// The part of a distributed optimizer that lives where parameters live.
//
//   parameter ──storage── alias (own version counter) ◄── libtorch optimizer
//       │                   ▲ grad, for the time of a step
//       └── gradient in the autograd context of the step
//
// Working on aliases leaves the user's `.grad` alone, and does not invalidate graphs that other
// trainers have recorded over the parameters.
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/optim/options.hpp>
#include <weft/rref/peer.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::optim::detail {

/// Errors of libtorch without the list of its stack frames.
template <class Work>
auto in_words(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const c10::Error& e) {
    throw std::runtime_error(e.what_without_backtrace());
  }
}

template <class Optimizer>
class owner_optimizer {
 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// Throws what the optimizer's constructor throws, and std::invalid_argument for parameters that
  /// are undefined, not leaves, or given twice.
  owner_optimizer(std::vector<at::Tensor> parameters, const options_type& options)
      : parameters_(checked(std::move(parameters))), optimizer_(in_words([&] {
          return std::make_unique<Optimizer>(aliases_of(parameters_), options);
        })) {}

  /// Applies the gradients that the running call's autograd context has for the parameters here.
  /// On the compute pool. Steps of one object wait for each other. False, and nothing was done, if
  /// a pass that ran here may have succeeded without this worker knowing yet: await `settled`.
  bool step() {
    const auto context = context_of_call();
    const std::lock_guard one_at_a_time(*mutex_);
    const auto gradients = gradients_of(*context);
    if (!gradients) return false;
    const given_gradients given(*optimizer_, parameters_, *gradients);
    if (given.count() == 0) return true;
    const at::AutoGradMode off(false);
    in_words([&] { optimizer_->step(); });
    return true;
  }

  /// Returns when `step` knows what became of every pass that has run here.
  asio::awaitable<void> settled(worker& me) {
    co_await me.use<autograd_service>().gradients(context_of_call());
  }

 private:
  /// Gives the aliases their gradients and takes them away again.
  class given_gradients {
   public:
    given_gradients(Optimizer& o, const std::vector<at::Tensor>& parameters,
                    const autograd::gradient_map& gradients)
        : aliases_(o.param_groups().front().params()) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor gradient = gradients.find(parameters[i]);
        if (!gradient.defined()) continue;
        aliases_[i].mutable_grad() = std::move(gradient);
        ++count_;
      }
    }
    given_gradients(const given_gradients&) = delete;
    given_gradients& operator=(const given_gradients&) = delete;
    ~given_gradients() {
      for (at::Tensor& alias : aliases_) alias.mutable_grad() = at::Tensor();
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

   private:
    std::vector<at::Tensor>& aliases_;
    std::size_t count_ = 0;
  };

  static ref<autograd_service::context_state> context_of_call() {
    auto context = autograd_service::current();
    if (!context) {
      throw rpc_error(errc::autograd_context_gone, "a step needs an open autograd context",
                      execution::not_executed);
    }
    return context;
  }

  /// Nothing if a pass has yet to say whether it succeeded.
  static std::optional<autograd::gradient_map>
  gradients_of(const autograd_service::context_state& context) {
    const std::lock_guard lock(context.mutex);
    if (context.released) {
      throw rpc_error(errc::autograd_context_gone, "the autograd context was released",
                      execution::not_executed);
    }
    if (context.settling()) return std::nullopt;
    return context.gradients;
  }

  static std::vector<at::Tensor> checked(std::vector<at::Tensor> parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& p = parameters[i];
      const auto refuse = [](const char* why) {
        throw std::invalid_argument(std::string("a parameter of an optimizer ") + why);
      };
      if (!p.defined()) refuse("is an undefined tensor");
      if (!p.is_leaf()) refuse("is not a leaf: give the tensor it was computed from");
      const auto same = [&p](const at::Tensor& other) { return other.is_same(p); };
      if (std::any_of(parameters.begin(), parameters.begin() + static_cast<std::ptrdiff_t>(i),
                      same)) {
        refuse("was given twice");
      }
    }
    return parameters;
  }

  static std::vector<at::Tensor> aliases_of(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> aliases;
    aliases.reserve(parameters.size());
    for (const at::Tensor& p : parameters) {
      aliases.push_back(p.variable_data());
      aliases.back().set_requires_grad(p.requires_grad());
    }
    return aliases;
  }

  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

/// Called on a reference: returns when its object is made, or throws why it was not.
inline light<void> await_parameter(at::Tensor&) { return {}; }

/// What `distributed::create` calls at each owner.
template <class Optimizer>
asio::awaitable<rref<owner_optimizer<Optimizer>>>
make_owner_optimizer(worker& me, std::vector<rref<at::Tensor>> parameters,
                     typename optimizer_traits<Optimizer>::options options) {
  std::vector<at::Tensor> here;
  for (const rref<at::Tensor>& p : parameters) {
    co_await p.template call<&await_parameter>();
    here.push_back(*p.local());
  }
  co_return me.share(owner_optimizer<Optimizer>(std::move(here), options));
}

template <std::size_t A, std::size_t B>
consteval fixed_string<A + B - 1> joined(const char (&first)[A], const fixed_string<B>& second) {
  char text[A + B - 1] = {};
  for (std::size_t i = 0; i + 1 < A; ++i) text[i] = first[i];
  for (std::size_t i = 0; i < B; ++i) text[A - 1 + i] = second.text[i];
  return fixed_string<A + B - 1>(text);
}

template <class Optimizer>
inline constexpr auto make_function =
    named<joined("weft::optim::create/", optimizer_traits<Optimizer>::name),
          &make_owner_optimizer<Optimizer>>;
template <class Optimizer>
inline constexpr auto step_function =
    named<joined("weft::optim::step/", optimizer_traits<Optimizer>::name),
          &owner_optimizer<Optimizer>::step>;
template <class Optimizer>
inline constexpr auto settled_function =
    named<joined("weft::optim::settled/", optimizer_traits<Optimizer>::name),
          &owner_optimizer<Optimizer>::settled>;

}  // namespace weft::optim::detail
