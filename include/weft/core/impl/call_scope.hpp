// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/call_scope.hpp, and the executor that installs a scope.
#pragma once

#include <weft/config.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/associated_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/execution.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>

#include <type_traits>
#include <utility>

namespace weft {

namespace detail {
WEFT_PROCESS_WIDE inline thread_local const call_scope* current_scope = nullptr;

/// Installs a scope on this thread for the guard's life. Never held across co_await.
class scope_guard {
 public:
  explicit scope_guard(const call_scope* installed) noexcept
      : installed_(installed),
        before_(std::exchange(current_scope, installed)),
        outer_(std::exchange(innermost, this)) {
    // One coroutine may resume another inside its own resumption: the outer mode is not the
    // inner's.
    if (outer_) outer_->leave();
    enter();
  }
  scope_guard(const scope_guard&) = delete;
  scope_guard& operator=(const scope_guard&) = delete;
  ~scope_guard() {
    leave();
    if (outer_) outer_->enter();
    innermost = outer_;
    current_scope = before_;
  }

 private:
  void enter() noexcept {
    if (installed_ && installed_->mode) installed_->mode->enter(saved_);
  }
  void leave() noexcept {
    if (installed_ && installed_->mode) installed_->mode->leave(saved_);
  }

  WEFT_PROCESS_WIDE static thread_local scope_guard* innermost;

  const call_scope* installed_;
  const call_scope* before_;
  scope_guard* outer_;
  thread_mode::saved saved_;
};
inline thread_local scope_guard* scope_guard::innermost = nullptr;

}  // namespace detail

inline intrusive_ptr<const call_scope> this_scope() noexcept {
  return intrusive_ptr<const call_scope>(detail::current_scope);
}

/// Wraps a concrete executor so that whatever it runs, runs inside a scope. Two pointers, so that
/// `any_io_executor` holds it without an allocation. Goes outside a strand, never inside.
template <class Inner>
class scope_executor {
 public:
  scope_executor(Inner inner, intrusive_ptr<const call_scope> installed) noexcept
      : inner_(std::move(inner)), scope_(std::move(installed)) {}

  [[nodiscard]] const intrusive_ptr<const call_scope>& installed() const noexcept { return scope_; }
  [[nodiscard]] const Inner& inner() const noexcept { return inner_; }

  template <class Property>
    requires asio::can_query<const Inner&, Property>::value
  decltype(auto) query(const Property& p) const
      noexcept(asio::is_nothrow_query<const Inner&, Property>::value) {
    return asio::query(inner_, p);
  }
  template <class Property>
    requires asio::can_require<const Inner&, Property>::value
  auto require(const Property& p) const {
    using inner_type = std::decay_t<decltype(asio::require(inner_, p))>;
    return scope_executor<inner_type>(asio::require(inner_, p), scope_);
  }
  template <class Property>
    requires asio::can_prefer<const Inner&, Property>::value
  auto prefer(const Property& p) const {
    using inner_type = std::decay_t<decltype(asio::prefer(inner_, p))>;
    return scope_executor<inner_type>(asio::prefer(inner_, p), scope_);
  }

  template <class Function>
  void execute(Function&& function) const {
    inner_.execute([installed = scope_, f = std::forward<Function>(function)]() mutable {
      run_inside(installed, std::move(f));
    });
  }
  /// At once, on this thread.
  template <class Function>
  void run_now(Function&& function) const {
    const intrusive_ptr<const call_scope> installed = scope_;
    run_inside(installed, std::forward<Function>(function));
  }

  friend bool operator==(const scope_executor& a, const scope_executor& b) noexcept {
    return a.inner_ == b.inner_ && a.scope_ == b.scope_;
  }

 private:
  template <class Function>
  static void run_inside(const intrusive_ptr<const call_scope>& installed, Function&& function) {
    // Held: the call may end within, and its scope is installed until the guard leaves.
    const intrusive_ptr<const call_scope> call = installed ? installed->delegate : nullptr;
    const detail::scope_guard guard(call ? call.get() : installed.get());
    std::forward<Function>(function)();
  }

  Inner inner_;
  intrusive_ptr<const call_scope> scope_;
};

static_assert(sizeof(scope_executor<asio::io_context::executor_type>) <= 16);

namespace detail {

[[nodiscard]] inline asio::io_context*
io_context_of_plain(const asio::io_context::executor_type& executor) noexcept {
  const bool never =
      asio::query(executor, asio::execution::blocking) == asio::execution::blocking.never;
  return never ? nullptr : &asio::query(executor, asio::execution::context);
}

/// The io_context on which `executor` runs what it is given, with or without a scope, at once where
/// that can be; null if it is of another kind.
template <class Executor>
[[nodiscard]] asio::io_context* io_context_of(const Executor& executor) noexcept {
  using plain = asio::io_context::executor_type;
  if constexpr (std::is_same_v<Executor, plain>) {
    return io_context_of_plain(executor);
  } else if constexpr (std::is_same_v<Executor, scope_executor<plain>>) {
    return io_context_of_plain(executor.inner());
  } else if constexpr (requires { executor.template target<plain>(); }) {
    const auto* s = executor.template target<scope_executor<plain>>();  // nearly every one
    if (s) return io_context_of_plain(s->inner());
    const auto* p = executor.template target<plain>();
    return p ? io_context_of_plain(*p) : nullptr;
  } else {
    return nullptr;
  }
}
/// Runs `f` at once as `executor`, which has an io_context, would: on its thread only.
template <class Executor, class F>
void run_inside(const Executor& executor, F&& f) {
  using scoped_io = scope_executor<asio::io_context::executor_type>;
  const scoped_io* wrapper = nullptr;
  if constexpr (std::is_same_v<Executor, scoped_io>) {
    wrapper = &executor;
  } else if constexpr (requires { executor.template target<scoped_io>(); }) {
    wrapper = executor.template target<scoped_io>();
  }
  if (!wrapper) return std::forward<F>(f)();
  wrapper->run_now(std::forward<F>(f));
}

}  // namespace detail

template <class Context>
asio::any_io_executor scoped(Context& context, intrusive_ptr<const call_scope> installed) {
  return scope_executor<typename Context::executor_type>(context.get_executor(),
                                                         std::move(installed));
}

template <class T>
asio::awaitable<T> with_scope(asio::io_context& context, intrusive_ptr<const call_scope> installed,
                              asio::awaitable<T> child) {
  co_return co_await asio::co_spawn(scoped(context, std::move(installed)), std::move(child),
                                    asio::use_awaitable);
}

}  // namespace weft
