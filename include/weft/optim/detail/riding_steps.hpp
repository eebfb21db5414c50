// SPDX-License-Identifier: BSL-1.0
// Steps that ride on the end of passes.
#pragma once

#include <weft/autograd/service.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/log.hpp>
#include <weft/optim/detail/aliased_optimizer.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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
        worker_(me.name()),
        of_(std::move(of)) {}

  [[nodiscard]] std::unique_ptr<autograd::prepared_step> prepare() override {
    return std::make_unique<prepared>(std::make_shared<place>(this->shared_from_this()));
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
  /// The turn of one of them, which `finish` waits for.
  struct place {
    explicit place(std::shared_ptr<riding_steps> all)
        : of(std::move(all)), turn(make_intrusive<write_turn>(of->of_->memory())) {
      const std::lock_guard lock(of->mutex_);
      if (of->under_way_++ == 0) of->none_ = make_intrusive<event>();
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      turn = nullptr;
      const std::lock_guard lock(of->mutex_);
      if (--of->under_way_ == 0) of->none_->set();
    }
    /// The first is logged as well: perhaps nobody asks.
    void failed(const std::exception_ptr& why, std::string_view words) const {
      {
        const std::lock_guard lock(of->mutex_);
        if (!of->failure_) of->failure_ = why;
        if (std::exchange(of->logged_, true)) return;
      }
      weft::detail::say(of->worker_, "a step at the end of a backward pass failed: " +
                                         std::string(words) + "; finish() throws it");
    }

    std::shared_ptr<riding_steps> of;
    intrusive_ptr<write_turn> turn;
  };
  class prepared final : public autograd::prepared_step {
   public:
    explicit prepared(std::shared_ptr<place> its) : place_(std::move(its)) {}
    void begin(autograd::gradient_map gradients, const error& lost) override {
      const auto its = std::move(place_);
      if (lost) return its->failed(std::make_exception_ptr(rpc_error(lost)), lost.message());
      weft::detail::post_or_die(its->of->executor_, [its, all = std::move(gradients)]() mutable {
        start_on(its->of->executor_, run(its, std::move(all))).detach();
      });
    }

   private:
    std::shared_ptr<place> place_;
  };

  static asio::awaitable<void> run(std::shared_ptr<place> its, autograd::gradient_map gradients) {
    const riding_steps& self = *its->of;
    co_await event::wait(its->turn->granted);
    try {
      co_await step_on(*self.pool_, self.of_, std::move(gradients), 1.0, std::move(its->turn));
    } catch (const std::exception& e) {  // what the optimizer throws
      its->failed(std::current_exception(), weft::detail::words_of(e));
    } catch (...) {
      its->failed(std::current_exception(), "something that is not a std::exception was thrown");
    }
  }

  asio::any_io_executor executor_;
  std::remove_reference_t<decltype(std::declval<worker&>().compute_pool())>* pool_;
  std::string worker_;
  std::shared_ptr<aliased_optimizer<Optimizer>> of_;
  std::mutex mutex_;
  std::size_t under_way_ = 0;
  intrusive_ptr<event> none_;
  std::exception_ptr failure_;
  bool logged_ = false;
};

}  // namespace weft::optim::detail
