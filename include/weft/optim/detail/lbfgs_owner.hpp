// SPDX-License-Identifier: BSL-1.0
// The part of a distributed LBFGS that lives where the parameters live.
//
//   trainer                    owner's coroutine            thread of the step
//     begin ────────────────────► starts ─────────────────────► optimizer.step(closure)
//     ◄── compute the loss ───────┤ ◄────────────────────────── closure waits
//     go_on(loss), in a context ──► its gradients ────────────► closure returns the loss
//     ◄── again, or done ─────────┤ ◄────────────────────────── ...
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/linkage.hpp>
#include <weft/optim/detail/owner.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/optim/lbfgs.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::optim::detail {

/// The options of LBFGS, as they travel.
struct lbfgs_values {
  double lr = 1;
  std::int64_t max_iter = 20;
  std::optional<std::int64_t> max_eval;
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  std::int64_t history_size = 100;
  std::optional<std::string> line_search_fn;

  static lbfgs_values of(const torch::optim::LBFGSOptions& o) {
    return {
        o.lr(),           o.max_iter(),      o.max_eval(), o.tolerance_grad(), o.tolerance_change(),
        o.history_size(), o.line_search_fn()};
  }
  [[nodiscard]] torch::optim::LBFGSOptions options() const {
    return torch::optim::LBFGSOptions(lr)
        .max_iter(max_iter)
        .max_eval(max_eval)
        .tolerance_grad(tolerance_grad)
        .tolerance_change(tolerance_change)
        .history_size(history_size)
        .line_search_fn(line_search_fn);
  }
};

/// What the owner answers: that the step is done, with its first loss; or that the loss is wanted.
struct lbfgs_answer {
  bool done = false;
  double loss = 0;
};

/// A step under way: between its thread and the coroutines that serve the trainer.
class lbfgs_step final : public ref_counted {
 public:
  lbfgs_step(std::uint64_t which, intrusive_ptr<write_turn> turn)
      : number(which), turn_(std::move(turn)) {}

  const std::uint64_t number;

  // ── the coroutines' side ──
  /// Set when the thread wants something, or has ended. Anew for each answer.
  [[nodiscard]] intrusive_ptr<event> news() {
    const std::lock_guard lock(mutex_);
    return news_;
  }
  /// After `news`. Throws what the step has thrown.
  [[nodiscard]] lbfgs_answer answer() {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    return {over_, loss_};
  }
  void go_on(double loss) {
    const std::lock_guard lock(mutex_);
    news_ = make_intrusive<event>();
    given_ = loss;
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  // ── the thread's side ──
  [[nodiscard]] double wait_for_loss() {
    std::unique_lock lock(mutex_);
    news_->set();
    changed_.wait(lock, [this] { return stopped_ || given_; });
    if (stopped_) throw std::runtime_error("the step was given up");
    return *std::exchange(given_, std::nullopt);
  }
  void end(double loss, std::exception_ptr failure) {
    turn_ = nullptr;
    const std::lock_guard lock(mutex_);
    over_ = true;
    loss_ = loss;
    failure_ = std::move(failure);
    news_->set();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  intrusive_ptr<event> news_ = make_intrusive<event>();
  std::optional<double> given_;
  bool stopped_ = false, over_ = false;
  double loss_ = 0;
  std::exception_ptr failure_;
  intrusive_ptr<write_turn> turn_;
};

/// The optimizer over aliases of its parameters (owner.hpp).
class lbfgs_owner {
 public:
  lbfgs_owner(asio::any_io_executor pool, std::vector<at::Tensor> parameters,
              const lbfgs_values& values)
      : pool_(std::move(pool)),
        parameters_(std::move(parameters)),
        aliases_(aliases_of(parameters_)) {
    optimizer_ =
        in_words([&] { return std::make_shared<torch::optim::LBFGS>(aliases_, values.options()); });
  }
  lbfgs_owner(lbfgs_owner&&) = default;
  lbfgs_owner& operator=(lbfgs_owner&&) = delete;
  ~lbfgs_owner() {
    if (!step_) return;
    step_->stop();
    // Awaited before the worker is gone, but not on its thread: what it computes ends first.
    weft::detail::post_or_die(pool_, [thread = std::move(thread_)] {});
  }

  /// Waits for its turn among all steps that write the same memory. The trainer chooses the number,
  /// so that it can give the step up before it has an answer.
  asio::awaitable<lbfgs_answer> begin(std::uint64_t which) {
    auto turn = make_intrusive<write_turn>(memory_of(parameters_));
    co_await event::wait(turn->granted);
    for (std::size_t i = 0; i < aliases_.size(); ++i) {
      if (!aliases_[i].is_alias_of(parameters_[i])) {
        throw rpc_error(
            errc::invalid_argument,
            "parameter " + std::to_string(i) +
                " has other memory now than when the optimizer was made: make a new one",
            call_progress::not_executed);
      }
    }
    step_ = make_intrusive<lbfgs_step>(which, std::move(turn));
    // A thread of its own: it waits for the trainer, whose functions need the pool here.
    thread_ = std::jthread([step = step_, optimizer = optimizer_, aliases = aliases_] {
      run(*step, *optimizer, aliases);
    });
    co_return co_await next(step_);
  }

  /// The loss that was wanted; its gradients are in the call's context.
  asio::awaitable<lbfgs_answer> go_on(worker& me, std::uint64_t which, double loss) {
    const auto step = step_;
    if (!step || step->number != which) {
      throw rpc_error(errc::invalid_argument, "this step of LBFGS is over",
                      call_progress::not_executed);
    }
    const auto gradients = co_await me.use<autograd_service>().gradients(context_of_call());
    for (std::size_t i = 0; i < aliases_.size(); ++i) {
      const at::Tensor g = gradients.find(parameters_[i]);
      aliases_[i].mutable_grad() = g.defined() ? g.clone() : g;
    }
    step->go_on(loss);
    co_return co_await next(step);
  }

  /// A coroutine, as the others: they share `step_` on the worker's thread.
  asio::awaitable<void> give_up(std::uint64_t which) {
    if (step_ && step_->number == which) step_->stop();
    co_return;
  }

 private:
  static void run(lbfgs_step& step, torch::optim::LBFGS& optimizer,
                  std::vector<at::Tensor> aliases) {
    double loss = 0;
    std::exception_ptr failure;
    try {
      loss = in_words([&] {
        return optimizer.step([&] { return at::scalar_tensor(step.wait_for_loss(), at::kDouble); })
            .item<double>();
      });
    } catch (...) {  // what the optimizer throws
      failure = std::current_exception();
    }
    for (at::Tensor& alias : aliases) alias.mutable_grad() = at::Tensor();
    step.end(loss, failure);
  }
  static asio::awaitable<lbfgs_answer> next(intrusive_ptr<lbfgs_step> step) {
    co_await event::wait(step->news());
    co_return step->answer();
  }

  asio::any_io_executor pool_;
  std::vector<at::Tensor> parameters_, aliases_;
  std::shared_ptr<torch::optim::LBFGS> optimizer_;
  intrusive_ptr<lbfgs_step> step_;  // the last one
  std::jthread thread_;             // its, which has ended when the next begins
};

/// What `lbfgs::create` calls.
WEFT_PROCESS_WIDE inline asio::awaitable<rref<lbfgs_owner>>
make_lbfgs(worker& me, std::vector<rref<at::Tensor>> parameters, lbfgs_values options) {
  std::vector<at::Tensor> here;
  for (const rref<at::Tensor>& p : parameters) {
    co_await p.call<&await_parameter>();
    here.push_back(*p.local());
    if (!here.back().defined() || !here.back().is_leaf() || !here.back().has_storage()) {
      throw std::invalid_argument("a parameter of an optimizer is not a leaf");
    }
  }
  co_return me.share(lbfgs_owner(me.compute_pool(), std::move(here), options));
}

}  // namespace weft::optim::detail
