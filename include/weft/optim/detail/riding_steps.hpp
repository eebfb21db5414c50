// SPDX-License-Identifier: BSL-1.0
// Steps that ride on the end of passes.
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/optim/detail/aliased_optimizer.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace weft::optim::detail {

/// Steps that ride on the end of passes, one after another as others do.
template <class Optimizer>
class riding_steps final : public autograd::pass_follower,
                           public std::enable_shared_from_this<riding_steps<Optimizer>> {
 public:
  riding_steps(worker& me, std::shared_ptr<aliased_optimizer<Optimizer>> of)
      : executor_(weft::detail::context_of(me).get_executor()),
        pool_(&me.compute_pool()),
        of_(std::move(of)) {}

  void pass_ended(autograd::gradient_map gradients, const error& lost) override {
    {
      const std::lock_guard lock(mutex_);
      if (lost) {
        if (!failure_) failure_ = std::make_exception_ptr(rpc_error(lost));
        return;
      }
      if (under_way_++ == 0) none_ = make_intrusive<event>();
    }
    const auto turn = make_intrusive<write_turn>(of_->memory());
    weft::detail::post_or_die(executor_, [self = this->shared_from_this(), its = turn,
                                          all = std::move(gradients)]() mutable {
      start_on(self->executor_, run(self, std::move(its), std::move(all))).detach();
    });
  }
  /// Throws what the first of them has thrown since it was asked last.
  static asio::awaitable<void> finish(std::shared_ptr<riding_steps> self) {
    for (;;) {
      intrusive_ptr<event> none;
      {
        const std::lock_guard lock(self->mutex_);
        if (self->under_way_ == 0) {
          if (const auto failure = std::exchange(self->failure_, nullptr)) {
            std::rethrow_exception(failure);
          }
          co_return;
        }
        none = self->none_;
      }
      co_await event::wait(none);
    }
  }

 private:
  static asio::awaitable<void> run(std::shared_ptr<riding_steps> self,
                                   intrusive_ptr<write_turn> turn,
                                   autograd::gradient_map gradients) {
    co_await event::wait(turn->granted);
    std::exception_ptr failure;
    try {
      co_await step_on(*self->pool_, self->of_, std::move(gradients), 1.0, std::move(turn));
    } catch (...) {  // what the optimizer throws
      failure = std::current_exception();
    }
    const std::lock_guard lock(self->mutex_);
    if (failure && !self->failure_) self->failure_ = failure;
    if (--self->under_way_ == 0) self->none_->set();
  }

  asio::any_io_executor executor_;
  std::remove_reference_t<decltype(std::declval<worker&>().compute_pool())>* pool_;
  std::shared_ptr<aliased_optimizer<Optimizer>> of_;
  std::mutex mutex_;
  std::size_t under_way_ = 0;
  intrusive_ptr<event> none_;
  std::exception_ptr failure_;
};

}  // namespace weft::optim::detail
