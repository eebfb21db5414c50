// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/event.hpp.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/erased_handler.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/preallocated_post.hpp>
#include <weft/core/detail/ready_line.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/event.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/deferred.hpp>
#include <asio/execution/context.hpp>
#include <asio/query.hpp>

#include <memory>
#include <system_error>

namespace weft {

/// Completed by whoever takes it out of the event's list, unless its io_context went before.
struct event::waiter final : detail::ready_line::item {
  /// `io` is of the handler's executor; null: that has another kind of context.
  explicit waiter(asio::io_context* where) : io(where) {}

  void complete(asio::error_code ec) {
    if (const auto guard = this->leave()) post(ec);
  }
  void post(asio::error_code ec) {
    if (io) {
      post_(*io, waking(intrusive_ptr<waiter>(this), ec));
    } else {
      handler.post(ec);
    }
  }
  /// The event is set already.
  void post_at_once() {
    if (!io || !detail::ready_line::join(*io, intrusive_ptr<waiter>(this))) post({});
  }
  void go_on() override { handler.resume(*io, {}); }
  void go_on_later() noexcept override { post({}); }
  void abandon() noexcept override { handler.drop(); }

  /// On its way to the io_context; if that goes first, the handler goes with it.
  struct waking {
    waking(intrusive_ptr<waiter> w, asio::error_code e) noexcept : self(std::move(w)), ec(e) {}
    waking(waking&& other) noexcept : self(std::exchange(other.self, nullptr)), ec(other.ec) {}
    waking& operator=(waking&&) = delete;
    ~waking() {
      if (self) self->handler.drop();
    }
    void operator()() {
      const intrusive_ptr<waiter> who = std::exchange(self, nullptr);
      detail::ready_line line(*who->io);
      who->handler.resume(*who->io, ec);
      line.resume_all();
    }
    intrusive_ptr<waiter> self;
    asio::error_code ec;
  };

  intrusive_ptr<waiter> next;  // in the event's list
  waiter* previous = nullptr;
  bool listed = false;
  asio::io_context* const io;
  detail::erased_handler<void(asio::error_code)> handler;
  detail::preallocated_post post_;
};

template <class CompletionToken>
auto event::async_wait(intrusive_ptr<event> self, CompletionToken&& token) {
  return asio::async_initiate<CompletionToken, void(asio::error_code)>(
      [](auto handler, const intrusive_ptr<event>& e) { e->add(std::move(handler)); }, token,
      std::move(self));
}

template <class Handler>
void event::add(Handler handler) {
  detail::or_die([&] {
    auto slot = asio::get_associated_cancellation_slot(handler);
    const auto executor = asio::get_associated_executor(handler);
    const auto w = make_intrusive<waiter>(detail::io_context_of(executor));
    w->handler.put(std::move(handler));
    bool waits = false;
    if (!is_set()) {
      auto home = detail::waiter_registry::of(asio::query(executor, asio::execution::context));
      const std::lock_guard lock(mutex_);
      if (!set_) {
        w->enter(std::move(home));
        link(w);
        waits = true;
      }
    }
    if (!waits) {
      w->post_at_once();
    } else if (slot.is_connected()) {
      slot.assign([self = intrusive_ptr<event>(this), w](asio::cancellation_type) {
        self->drop(*w, asio::error::operation_aborted);
      });
    }
  });
}

}  // namespace weft
