// SPDX-License-Identifier: BSL-1.0
// Coroutine-local state, which a call inherits from the coroutine that makes it.
//
//   any_io_executor -> scope_executor{ io_context executor, intrusive_ptr<const call_scope> }
//
// Every resumption of a coroutine goes through its executor. The wrapper installs the scope for
// the time of the resumption, then restores the earlier one. A child that is awaited directly
// shares its parent's scope. A child with another scope is spawned (`with_scope`).
#pragma once

#include <weft/core/intrusive_ptr.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace weft {

/// A mode of the thread that is installed while a coroutine runs, such as a grad mode.
/// Semantic duty: `leave` undoes `enter`; both are cheap and do not throw.
class thread_mode : public ref_counted {
 public:
  struct saved {
    std::uint64_t words[2] = {};
  };
  virtual void enter(saved& before) const noexcept = 0;
  virtual void leave(const saved& before) const noexcept = 0;
};

/// Once a scope is installed, it is constant, and any thread may read it. To change it, make a new
/// one.
///
///   const auto scope = weft::this_scope();  // in a function that weft runs
///   if (scope && scope->deadline && *scope->deadline < me.time().now() + 1s) co_return quick();
struct call_scope : ref_counted {
  using time_point = std::chrono::steady_clock::time_point;

  std::optional<time_point> deadline;         ///< of the call that this coroutine serves
  intrusive_ptr<const ref_counted> autograd;  ///< autograd context, if any (autograd/context.hpp)
  intrusive_ptr<const thread_mode> mode;      ///< installed while the coroutine runs
  std::uint64_t trace = 0;
  std::uint64_t span = 0;
  /// If a coroutine serves one call after another: the scope of the present call, which is
  /// installed instead of this one. Only that coroutine's owner changes it, on its thread.
  intrusive_ptr<const call_scope> delegate;

  [[nodiscard]] const call_scope* installed() const noexcept {
    return delegate ? delegate.get() : this;
  }
  [[nodiscard]] intrusive_ptr<call_scope> copy() const {
    auto out = make_intrusive<call_scope>();
    out->deadline = deadline;
    out->autograd = autograd;
    out->mode = mode;
    out->trace = trace;
    out->span = span;
    return out;
  }
};

/// The scope of the running coroutine or function; null if there is none.
[[nodiscard]] intrusive_ptr<const call_scope> this_scope() noexcept;

/// The executor of a coroutine that runs on `context` inside `installed`. Any thread. It is a
/// template over the io_context only to compile nothing of it where it is not used.
template <class Context = asio::io_context>
[[nodiscard]] asio::any_io_executor scoped(Context& context,
                                           intrusive_ptr<const call_scope> installed);

/// Awaits `child` inside another scope, on `context`. Throws the child's error. Cancelling the
/// awaiting coroutine cancels the child.
template <class T>
[[nodiscard]] asio::awaitable<T> with_scope(asio::io_context& context,
                                            intrusive_ptr<const call_scope> installed,
                                            asio::awaitable<T> child);

}  // namespace weft

#include <weft/core/impl/call_scope.hpp>
