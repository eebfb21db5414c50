// SPDX-License-Identifier: BSL-1.0
// The part of a distributed LBFGS that lives where the parameters live.
//
//   trainer                    owner's coroutine            thread of the step
//     begin ────────────────────► starts ─────────────────────► optimizer.step(closure)
//     ◄── compute the loss ───────┤ ◄────────────────────────── closure waits
//     go_on(loss), in a context ──► its gradients ────────────► closure returns the loss
//     ◄── again, or done ─────────┤ ◄────────────────────────── ...
//
// `begin` returns a reference to the step. The step is given up when the last reference is gone:
// when the trainer drops it, is cancelled before it has it, or is lost.
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

/// Between the thread of a step and the coroutines that serve the trainer.
class lbfgs_exchange final : public ref_counted {
 public:
  explicit lbfgs_exchange(intrusive_ptr<write_turn> turn) : turn_(std::move(turn)) {}

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
  [[nodiscard]] bool wants_loss() {
    const std::lock_guard lock(mutex_);
    return wants_loss_;
  }
  /// Once each time that it is wanted.
  void go_on(double loss) {
    const std::lock_guard lock(mutex_);
    wants_loss_ = false;
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
    wants_loss_ = true;
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
  bool wants_loss_ = false, stopped_ = false, over_ = false;
  double loss_ = 0;
  std::exception_ptr failure_;
  intrusive_ptr<write_turn> turn_;
};

/// The optimizer over aliases of its parameters (owner.hpp).
struct lbfgs_parts {
  std::vector<at::Tensor> parameters, aliases;
  std::unique_ptr<torch::optim::LBFGS> optimizer;
};

/// A step under way. Destroyed, it is given up, and its thread ends.
class lbfgs_step {
 public:
  lbfgs_step(asio::any_io_executor pool, std::shared_ptr<lbfgs_parts> of,
             intrusive_ptr<write_turn> turn)
      : pool_(std::move(pool)),
        of_(std::move(of)),
        exchange_(make_intrusive<lbfgs_exchange>(std::move(turn))),
        // A thread of its own: it waits for the trainer, whose functions need the pool here.
        thread_([its = exchange_, parts = of_] { run(*its, *parts); }) {}
  lbfgs_step(lbfgs_step&&) = default;
  lbfgs_step& operator=(lbfgs_step&&) = delete;
  ~lbfgs_step() {
    if (!exchange_) return;
    exchange_->stop();
    // Awaited before the worker is gone, but not on its thread: what it computes ends first.
    weft::detail::post_or_die(pool_, [thread = std::move(thread_)] {});
  }

  /// The loss that was wanted; its gradients are in the call's context.
  asio::awaitable<lbfgs_answer> go_on(worker& me, double loss) {
    const auto refuse_unless_wanted = [this] {
      if (exchange_->wants_loss()) return;
      throw rpc_error(errc::invalid_argument, "this step of LBFGS waits for no loss",
                      call_progress::not_executed);
    };
    refuse_unless_wanted();
    const auto gradients = co_await me.use<autograd_service>().gradients(context_of_call());
    refuse_unless_wanted();
    for (std::size_t i = 0; i < of_->aliases.size(); ++i) {
      const at::Tensor g = gradients.find(of_->parameters[i]);
      of_->aliases[i].mutable_grad() = g.defined() ? g.clone() : g;
    }
    exchange_->go_on(loss);
    co_return co_await next();
  }
  asio::awaitable<lbfgs_answer> next() const {
    const auto its = exchange_;
    co_await event::wait(its->news());
    co_return its->answer();
  }

 private:
  static void run(lbfgs_exchange& step, lbfgs_parts& of) {
    double loss = 0;
    std::exception_ptr failure;
    try {
      loss = in_words([&] {
        const auto closure = [&] { return at::scalar_tensor(step.wait_for_loss(), at::kDouble); };
        return of.optimizer->step(closure).item<double>();
      });
    } catch (...) {  // what the optimizer throws
      failure = std::current_exception();
    }
    for (at::Tensor& alias : of.aliases) alias.mutable_grad() = at::Tensor();
    step.end(loss, failure);
  }

  asio::any_io_executor pool_;
  std::shared_ptr<lbfgs_parts> of_;
  intrusive_ptr<lbfgs_exchange> exchange_;  // null: moved from
  std::jthread thread_;
};

class lbfgs_owner {
 public:
  lbfgs_owner(std::vector<at::Tensor> parameters, const lbfgs_values& values)
      : parts_(std::make_shared<lbfgs_parts>()) {
    parts_->parameters = checked_parameters(std::move(parameters));
    parts_->aliases = aliases_of(parts_->parameters);
    // libtorch reads behind an empty history.
    if (values.history_size < 1 || values.history_size > most_history) {
      throw std::invalid_argument("LBFGS needs a history_size from 1 to " +
                                  std::to_string(most_history));
    }
    parts_->optimizer = in_words(
        [&] { return std::make_unique<torch::optim::LBFGS>(parts_->aliases, values.options()); });
  }

  /// Waits for its turn among all steps that write the same memory. A coroutine given up gives the
  /// step up.
  asio::awaitable<std::pair<rref<lbfgs_step>, lbfgs_answer>> begin(worker& me) {
    const auto parts = parts_;
    auto turn = make_intrusive<write_turn>(memory_of(parts->parameters));
    co_await event::wait(turn->granted);
    for (std::size_t i = 0; i < parts->aliases.size(); ++i) {
      if (!parts->aliases[i].is_alias_of(parts->parameters[i])) {
        throw rpc_error(
            errc::invalid_argument,
            "parameter " + std::to_string(i) +
                " has other memory now than when the optimizer was made: make a new one",
            call_progress::not_executed);
      }
    }
    lbfgs_step step(me.compute_pool(), parts, std::move(turn));
    const lbfgs_answer first = co_await step.next();
    co_return std::pair(me.share(std::move(step)), first);
  }

 private:
  static constexpr std::int64_t most_history = 100'000;

  std::shared_ptr<lbfgs_parts> parts_;
};

/// What `lbfgs::create` calls.
WEFT_PROCESS_WIDE inline asio::awaitable<rref<lbfgs_owner>>
make_lbfgs(worker& me, std::vector<rref<at::Tensor>> parameters, lbfgs_values options) {
  auto here = co_await parameters_behind(std::move(parameters));
  co_return me.share(lbfgs_owner(std::move(here), options));
}

}  // namespace weft::optim::detail
