// SPDX-License-Identifier: BSL-1.0
// libtorch's learning rate schedulers over distributed optimizers.
//
//   using schedule = weft::optim::lr_scheduler<torch::optim::StepLR, SGD>;
//   auto lr = co_await schedule::create(sgd, 30, 0.1);  // StepLR's arguments behind the optimizer
//   co_await lr.step();                                 // at the end of an epoch
#pragma once

#include <weft/core/detail/macros_off.hpp>

#include <weft/core/error.hpp>
#include <weft/optim/distributed.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace weft::optim {

/// A scheduler of libtorch (torch::optim::StepLR, ReduceLROnPlateauScheduler, or one derived from
/// torch::optim::LRScheduler) that is made from an optimizer and further arguments. It works on an
/// optimizer of this worker with the same parameter groups; `step` gives the owners the learning
/// rates that this has then. Move-only; one thread at a time.
template <class Scheduler, class Optimizer>
class lr_scheduler {
 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// Reads the options of the optimizer's groups. Errors: those of a call; invalid_argument (the
  /// optimizer is empty, or the scheduler's constructor threw).
  template <class... Args>
  [[nodiscard]] static asio::awaitable<lr_scheduler> create(distributed<Optimizer> of,
                                                            Args... args) {
    lr_scheduler out(std::move(of));
    for (const options_type& o : co_await out.of_.options()) {
      out.add(o);
      out.given_.push_back(o.lr());
    }
    try {
      detail::in_words(
          [&] { out.scheduler_ = std::make_unique<Scheduler>(*out.like_, std::move(args)...); });
    } catch (const std::exception& e) {
      throw rpc_error(errc::invalid_argument, e.what());
    }
    co_return out;
  }

  /// Steps the scheduler, with its metric if it takes one. It goes on from the options that the
  /// owners have now, and groups whose learning rate changes get it. Errors are those of `options`
  /// and `set_options`; what a group could not get, the next step gives it again. The scheduler
  /// must outlive the step.
  template <class... Metric>
  [[nodiscard]] asio::awaitable<void> step(Metric... metric) {
    const std::vector<options_type> at_owners = co_await of_.options();
    for (std::size_t g = 0; g < given_.size(); ++g) {
      const double mine = options_of(g).lr();
      auto& group = like_->param_groups()[g];
      group.set_options(std::make_unique<options_type>(at_owners[g]));
      if (at_owners[g].lr() == given_[g]) group.options().set_lr(mine);
      given_[g] = at_owners[g].lr();
    }
    scheduler_->step(metric...);
    for (std::size_t g = 0; g < given_.size(); ++g) {
      const options_type now = options_of(g);
      if (now.lr() == given_[g]) continue;
      co_await of_.set_options(g, now);
      given_[g] = now.lr();
    }
  }

  /// Of each parameter group.
  [[nodiscard]] std::vector<double> learning_rates() const {
    std::vector<double> out;
    for (std::size_t g = 0; g < like_->param_groups().size(); ++g) {
      out.push_back(options_of(g).lr());
    }
    return out;
  }

 private:
  explicit lr_scheduler(distributed<Optimizer> of) : of_(std::move(of)) {}

  void add(const options_type& o) {
    std::vector<at::Tensor> parameters{at::zeros({1})};
    if (!like_) {
      like_ = std::make_unique<Optimizer>(std::move(parameters), o);
    } else {
      like_->add_param_group({std::move(parameters), std::make_unique<options_type>(o)});
    }
  }
  [[nodiscard]] const options_type& options_of(std::size_t group) const {
    return static_cast<const options_type&>(std::as_const(*like_).param_groups()[group].options());
  }

  distributed<Optimizer> of_;
  std::vector<double> given_;        // learning rates that the owners have
  std::unique_ptr<Optimizer> like_;  // which the scheduler refers to
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace weft::optim

#include <weft/core/detail/macros_on.hpp>
