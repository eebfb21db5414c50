// SPDX-License-Identifier: BSL-1.0
// Functions that do something before another one, in the form of `detail::exposed<f>`: coroutines
// that end by running it where it would have run by itself.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rpc/identity.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>
#include <asio/cancellation_state.hpp>
#include <asio/this_coro.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// Fn under another name, with Derived's suffix, as a coroutine.
template <class Fn, class Derived>
struct adapted : Fn {
  static constexpr function_style style = function_style::coroutine;
  static std::string_view name() {
    static const std::string& found = *new std::string(std::string(Fn::name()) + Derived::suffix());
    return found;
  }
  static std::uint64_t id() {
    static const std::uint64_t found = name_hash(name());
    return found;
  }
};

/// A plain function on its way to the compute pool, and there. What it waits for before it begins
/// may be given up; once it has begun it is waited for.
template <class Fn>
class pool_run final : public ref_counted {
 public:
  using result = typename Fn::result;

  pool_run(invocation& c, typename Fn::arguments&& arguments)
      : call_(&c), arguments_(std::move(arguments)) {}

  /// Pool.
  void run() noexcept {
    if (!leave_line(phase::runs)) return;
    {
      const scope_guard guard(call_.get());
      try {
        if (call_->deadline && call_->who.self().time().now() >= *call_->deadline) {
          throw rpc_error(errc::timed_out, "the deadline passed before the function began",
                          call_progress::not_executed);
        }
        call_->reached = invocation::stage::function;
        if constexpr (std::is_void_v<result>) {
          static_cast<void>(Fn::call(*call_, std::move(*arguments_)));
          value_.emplace();
        } else {
          value_.emplace(Fn::call(*call_, std::move(*arguments_)));
        }
      } catch (...) {  // what the function throws is its outcome
        failure_ = std::current_exception();
      }
      arguments_.reset();
    }
    done->set();
  }
  /// The pool has ended before.
  void drop() noexcept {
    if (!leave_line(phase::over)) return;
    failure_ = or_die([] {
      return std::make_exception_ptr(rpc_error(errc::shutting_down,
                                               "the compute pool ended before the function began",
                                               call_progress::not_executed));
    });
    done->set();
  }
  /// False: it has begun.
  [[nodiscard]] bool give_up() noexcept { return leave_line(phase::over); }
  /// Once it is done.
  result take() {
    rethrow_taken(failure_);
    if constexpr (!std::is_void_v<result>) return std::move(*value_);
  }

  const intrusive_ptr<event> done = make_intrusive<event>();

 private:
  enum class phase : std::uint8_t { waits, runs, over };
  bool leave_line(phase next) noexcept {
    phase expected = phase::waits;
    return now_.compare_exchange_strong(expected, next);
  }

  const intrusive_ptr<invocation> call_;
  std::optional<typename Fn::arguments> arguments_;
  std::atomic<phase> now_{phase::waits};
  std::optional<stored<result>> value_;
  std::exception_ptr failure_;
};

template <class Fn>
asio::awaitable<typename Fn::result> run_on_its_pool(invocation& c,
                                                     typename Fn::arguments arguments) {
  const auto job = make_intrusive<pool_run<Fn>>(c, std::move(arguments));
  struct on_its_way {
    explicit on_its_way(intrusive_ptr<pool_run<Fn>> j) noexcept : job(std::move(j)) {}
    on_its_way(on_its_way&&) noexcept = default;
    ~on_its_way() {
      if (job) job->drop();
    }
    void operator()() { std::exchange(job, nullptr)->run(); }
    intrusive_ptr<pool_run<Fn>> job;
  };
  post_or_die(c.who.self().compute_pool(), on_its_way(job));
  try {
    std::exception_ptr stopped;
    try {
      co_await event::wait(job->done);
    } catch (const std::system_error&) {  // given up
      stopped = std::current_exception();
    }
    if (stopped && job->give_up()) std::rethrow_exception(stopped);
    if (stopped) {
      co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
      co_await event::wait(job->done);
    }
  } catch (const std::bad_alloc&) {
    out_of_memory();  // whoever left now would let the next one in
  }
  co_return job->take();
}

/// Runs Fn for that request: a coroutine or an immediate function here, a plain one on the pool.
/// What lacks before it begins has done nothing.
template <class Fn>
asio::awaitable<typename Fn::result> run_in_its_place(invocation& c,
                                                      typename Fn::arguments arguments) {
  using R = typename Fn::result;
  if constexpr (Fn::style == function_style::plain) {
    co_return co_await run_on_its_pool<Fn>(c, std::move(arguments));
  } else if constexpr (Fn::style == function_style::coroutine) {
    c.runs = false;
    asio::awaitable<R> running = Fn::call(c, std::move(arguments));
    c.runs = true;
    c.reached = invocation::stage::function;
    co_return co_await std::move(running);
  } else {
    c.reached = invocation::stage::function;
    if constexpr (std::is_void_v<R>) {
      static_cast<void>(Fn::call(c, std::move(arguments)));
    } else {
      co_return Fn::call(c, std::move(arguments)).value;
    }
  }
}

}  // namespace weft::detail
