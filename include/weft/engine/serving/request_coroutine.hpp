// SPDX-License-Identifier: BSL-1.0
// Coroutines that serve requests one after another: starting one costs two posts and several
// allocations, giving a waiting one its next request costs neither. The rows call.reuse.* of the
// bench serve the same calls with a fresh coroutine each: of 64 calls at once reuse serves 1.33 to
// 1.39 times as many a second, and one call alone takes 2 to 3 % less.
//
//   begin ─► waits ──give──► serves ──► served(…) ─► waits, or ends if it is spent
//              └──drop──► ends
//
// Nothing of a request is left for the next: its scope is installed for it alone, what its function
// set for the whole coroutine is set back, and whoever has a cancelled coroutine, or one whose
// executor something left over still holds, lets it end instead (see
// tests/engine/request_coroutine.cpp).
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/erased_handler.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/resume_users.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving/cancellable.hpp>

#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/cancellation_state.hpp>
#include <asio/co_spawn.hpp>
#include <asio/deferred.hpp>
#include <asio/io_context.hpp>
#include <asio/this_coro.hpp>

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

namespace weft::engine {

/// How requests are served.
template <class S>
concept request_server = std::derived_from<typename S::request, call_scope> &&
                         requires(intrusive_ptr<typename S::request> call, cancellable* by) {
                           /// The request knows who serves it, so that it can be cancelled.
                           call->runner = by;
                           /// Runs its function and replies; throws only if it did not begin.
                           { S::serve(call) } -> std::same_as<asio::awaitable<void>>;
                           /// Replies, in a handler, that it did not begin, and why.
                           { S::refuse(*call) } noexcept;
                         };

/// Worker's thread only. Its coroutine holds it; while it waits it also holds its coroutine, so an
/// owner that keeps idle ones must `drop` them.
template <request_server Server>
class request_coroutine final : public ref_counted, public cancellable {
 public:
  using request = typename Server::request;
  /// Called when a request was served: this may be given another as soon as it is `reusable`,
  /// unless it is told to `retire`.
  using served = std::function<void(const intrusive_ptr<request_coroutine>&, request&)>;

  request_coroutine(asio::io_context& context, served done)
      : context_(context), done_(std::move(done)) {}
  /// Once, after it is held.
  void begin() {
    const asio::any_io_executor executor = scoped(context_, intrusive_ptr<const call_scope>(cell_));
    asio::co_spawn(executor, loop(intrusive_ptr<request_coroutine>(this)),
                   asio::bind_cancellation_slot(stop_.slot(), &detail::die_of));
    // Now it waits (it began at once, on this thread), and nothing has run in it yet: from here on
    // whoever else holds its scope is something that a call left over. One is this function's.
    if (waiting_) holders_when_clean_ = cell_->use_count() - 1;
  }

  /// Serves `call` at once if this waits, else as soon as its coroutine has started.
  void give(intrusive_ptr<request> call) {
    call->runner = this;
    cell_->delegate = intrusive_ptr<const call_scope>(call.get());
    current_ = std::move(call);
    if (waiting_) waiting_.resume(context_);
  }
  /// Cancels what is being served; this is spent then.
  void cancel() override {
    spent_ = true;
    // A cancellation handler may be the user's, and throw.
    detail::resume_users(context_, [this] { stop_.emit(asio::cancellation_type::terminal); });
  }
  /// May serve another request: it waits, and nobody kept its executor, by which something left
  /// over would run in the next request's scope.
  [[nodiscard]] bool reusable() const noexcept {
    return !spent_ && waiting_ && cell_->use_count() <= holders_when_clean_;
  }
  /// Ends a waiting coroutine.
  void drop() noexcept { waiting_.drop(); }
  /// Serves what it serves, then ends.
  void retire() noexcept { spent_ = true; }

 private:
  using waiting = detail::erased_handler<void()>;

  auto wait_for_request() {
    return asio::async_initiate<const asio::deferred_t, void()>(
        [](auto handler, request_coroutine* self) {
          static_assert(waiting::template has_room_for<decltype(handler)>);
          self->waiting_.put(std::move(handler));
        },
        asio::deferred, this);
  }
  static asio::awaitable<void> loop(intrusive_ptr<request_coroutine> self) {
    for (;;) {
      if (!self->current_) co_await self->wait_for_request();
      if (!self->current_) co_return;
      try {
        co_await Server::serve(self->current_);
      } catch (...) {  // it was cancelled before it began
        Server::refuse(*self->current_);
      }
      // A function may have changed what counts for the whole coroutine.
      co_await asio::this_coro::throw_if_cancelled(true);
      if (!self->spent_) {
        co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
      }
      const intrusive_ptr<request> call = std::exchange(self->current_, nullptr);
      call->runner = nullptr;
      self->cell_->delegate = nullptr;
      self->done_(self, *call);
      if (self->spent_) co_return;
    }
  }

  asio::io_context& context_;
  const served done_;
  const intrusive_ptr<call_scope> cell_ = make_intrusive<call_scope>();
  intrusive_ptr<request> current_;
  waiting waiting_;
  asio::cancellation_signal stop_;
  std::uint32_t holders_when_clean_ = 0;
  bool spent_ = false;
};

}  // namespace weft::engine
