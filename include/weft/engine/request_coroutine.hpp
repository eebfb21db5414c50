// SPDX-License-Identifier: BSL-1.0
// Coroutines that serve requests one after another: starting one costs two posts and several
// allocations, giving a waiting one its next request costs neither.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving.hpp>

#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/cancellation_state.hpp>
#include <asio/co_spawn.hpp>
#include <asio/deferred.hpp>
#include <asio/this_coro.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

namespace weft::engine {

/// Worker's thread only. Its coroutine holds it; while it waits it also holds its coroutine, so an
/// owner that keeps idle ones must `drop` them.
class request_coroutine final : public ref_counted, public cancellable {
 public:
  /// Called when a request was served: the runner may be given another, unless it is spent.
  using served = std::function<void(const intrusive_ptr<request_coroutine>&, served_request&)>;

  explicit request_coroutine(served done) : done_(std::move(done)) {}
  /// Once, after it is held.
  void begin(asio::io_context& context) {
    auto executor = scoped(context, intrusive_ptr<const call_scope>(cell_));
    asio::co_spawn(executor, loop(intrusive_ptr<request_coroutine>(this)),
                   asio::bind_cancellation_slot(stop_.slot(), [](std::exception_ptr) {}));
    // Now it waits (it began at once, on this thread), and nothing has run in it yet: from here on
    // whoever else holds its scope is something that a call left over.
    if (parked_) holders_when_clean_ = cell_->use_count();
  }

  /// Serves `call` at once if the runner waits, else as soon as its coroutine has started.
  void give(intrusive_ptr<served_request> call) {
    call->runner = this;
    cell_->forward = intrusive_ptr<const call_scope>(call.get());
    current_ = std::move(call);
    if (parked_) resume();
  }
  /// Cancels what is being served; the runner is spent then.
  void cancel() override {
    spent_ = true;
    stop_.emit(asio::cancellation_type::terminal);
  }
  /// May serve another request: it waits, and nobody kept its executor, by which something left
  /// over would run in the next request's scope.
  [[nodiscard]] bool reusable() const noexcept {
    return !spent_ && parked_ && cell_->use_count() <= holders_when_clean_;
  }
  /// Ends a waiting coroutine.
  void drop() {
    if (waiting* const parked = std::exchange(parked_, nullptr)) parked->end();
  }
  /// Serves what it serves, then ends.
  void retire() noexcept { spent_ = true; }

 private:
  struct waiting {
    virtual ~waiting() = default;
    /// Each destroys this, in its place.
    virtual void resume() = 0;
    virtual void end() noexcept = 0;
  };
  template <class Handler>
  struct waiting_with final : waiting {
    explicit waiting_with(Handler h) : handler(std::move(h)) {}
    void resume() override {
      Handler mine = std::move(handler);
      end();  // it may wait here again
      const auto executor = asio::get_associated_executor(mine);
      run_inside(executor, [&] { std::move(mine)(); });
    }
    void end() noexcept override { this->~waiting_with(); }
    Handler handler;
  };

  void resume() { std::exchange(parked_, nullptr)->resume(); }
  auto park() {
    return asio::async_initiate<const asio::deferred_t, void()>(
        [](auto handler, request_coroutine* self) {
          using held = waiting_with<decltype(handler)>;
          static_assert(sizeof(held) <= room && alignof(held) <= alignof(std::max_align_t));
          self->parked_ = new (self->place_) held(std::move(handler));
        },
        asio::deferred, this);
  }
  static asio::awaitable<void> loop(intrusive_ptr<request_coroutine> self) {
    for (;;) {
      if (!self->current_) co_await self->park();
      if (!self->current_) co_return;
      try {
        co_await serving::serve(self->current_);
      } catch (...) {  // it did not begin: cancelled before, or no memory for its frame
        serving::fail_from_exception(*self->current_);
        serving::finish(*self->current_);
      }
      // A function may have changed what counts for the whole coroutine.
      co_await asio::this_coro::throw_if_cancelled(true);
      if (!self->spent_) {
        co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
      }
      const intrusive_ptr<served_request> call = std::exchange(self->current_, nullptr);
      call->runner = nullptr;
      self->cell_->forward = nullptr;
      self->done_(self, *call);
      if (self->spent_) co_return;
    }
  }

  const served done_;
  const intrusive_ptr<call_scope> cell_ = make_intrusive<call_scope>();
  intrusive_ptr<served_request> current_;
  static constexpr std::size_t room = 128;
  alignas(std::max_align_t) std::byte place_[room];  // waiting needs no memory
  waiting* parked_ = nullptr;
  asio::cancellation_signal stop_;
  std::uint32_t holders_when_clean_ = 0;
  bool spent_ = false;
};

}  // namespace weft::engine
