// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/on_pool.hpp.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/context_owner.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/on_pool.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/this_coro.hpp>

#include <atomic>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// What the pool's thread and the coroutine share. The result is written before the event is set.
template <class R>
struct pool_outcome final : event {
  std::optional<stored<R>> value;
  std::exception_ptr failure;
  std::atomic<bool> given_up{false};  // nobody waits any more
};

template <class F, class Args, class R>
class pool_call final : public pool_job {
 public:
  pool_call(F&& f, Args&& args, intrusive_ptr<pool_outcome<R>> end)
      : function_(std::move(f)),
        arguments_(std::move(args)),
        scope_(this_scope()),
        end_(std::move(end)) {}
  ~pool_call() override {
    if (!end_) return;
    end_->failure = std::make_exception_ptr(
        rpc_error(errc::shutting_down, "the compute pool ended before the function began",
                  call_progress::not_executed));
    end_->set();
  }

  void run() noexcept override {
    {
      const scope_guard guard(scope_.get());
      if (!end_->given_up.load()) call();
      function_.reset();
      arguments_.reset();
    }
    std::exchange(end_, nullptr)->set();
  }

 private:
  void call() noexcept {
    try {
      if constexpr (std::is_void_v<R>) {
        std::apply(std::move(*function_), std::move(*arguments_));
        end_->value.emplace();
      } else {
        end_->value.emplace(std::apply(std::move(*function_), std::move(*arguments_)));
      }
    } catch (...) {
      end_->failure = std::current_exception();  // delivered to who awaits
    }
  }

  std::optional<F> function_;
  std::optional<Args> arguments_;
  intrusive_ptr<const call_scope> scope_;
  intrusive_ptr<pool_outcome<R>> end_;
};

template <class F, class... Args>
auto run_on_pool(F f, std::tuple<Args...> args)
    -> asio::awaitable<std::invoke_result_t<F, Args...>> {
  using R = std::invoke_result_t<F, Args...>;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::io_context* const io = io_context_of(executor);
  context_owner* const worker = io ? context_owners::of(*io) : nullptr;
  if (!worker) {
    throw rpc_error(errc::invalid_argument,
                    "there is no compute pool here: the coroutine does not run on a worker");
  }
  const auto end = make_intrusive<pool_outcome<R>>();
  struct gives_up {
    pool_outcome<R>& of;
    ~gives_up() { of.given_up.store(true); }
  } when_gone{*end};
  asio::awaitable<void> waits = event::wait(end);
  worker->submit(
      make_intrusive<pool_call<F, std::tuple<Args...>, R>>(std::move(f), std::move(args), end));
  co_await std::move(waits);
  rethrow_taken(end->failure);
  if constexpr (!std::is_void_v<R>) co_return std::move(*end->value);
}

}  // namespace weft::detail
