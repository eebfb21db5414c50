// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/event.hpp that are compiled once (weft/src_base.hpp).
#pragma once

#include <weft/core/event.hpp>

#include <asio/awaitable.hpp>
#include <asio/deferred.hpp>

#include <mutex>
#include <utility>

namespace weft {

WEFT_DECL event::~event() {
  while (first_) static_cast<void>(unlink(*first_));
}

WEFT_DECL void event::set() {
  const intrusive_ptr<event> held(this);  // who sees that it is set may drop it
  intrusive_ptr<waiter> woken;
  {
    const std::lock_guard lock(mutex_);
    if (set_) return;
    set_.store(true, std::memory_order_release);
    woken = std::exchange(first_, nullptr);
    last_ = nullptr;
  }
  // Nobody else follows their links now: a cancelled wait sees that the event is set.
  while (woken) {
    intrusive_ptr<waiter> next = std::move(woken->next);
    woken->complete({});
    woken = std::move(next);
  }
}

WEFT_DECL asio::awaitable<void> event::wait(intrusive_ptr<event> self) {
  co_await async_wait(std::move(self), asio::deferred);
}

WEFT_DECL void event::drop(waiter& w, asio::error_code why) {
  intrusive_ptr<waiter> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (set_ || !w.listed) return;
    dropped = unlink(w);
  }
  dropped->complete(why);
}

WEFT_DECL void event::link(const intrusive_ptr<waiter>& w) noexcept {
  w->listed = true;
  w->previous = last_;
  (last_ ? last_->next : first_) = w;
  last_ = w.get();
}

WEFT_DECL intrusive_ptr<event::waiter> event::unlink(waiter& w) noexcept {
  (w.next ? w.next->previous : last_) = w.previous;
  intrusive_ptr<waiter>& place = w.previous ? w.previous->next : first_;
  intrusive_ptr<waiter> out = std::exchange(place, std::move(w.next));
  out->listed = false;
  return out;
}

}  // namespace weft
