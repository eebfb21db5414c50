// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/channel.hpp.
//
//   send ─► a receiver that waits, or the ring, or the line of senders ─► receive
//
// Who hands over a value to one who waits, or takes one's, does both under the lock and sets its
// event behind it: from then on that wait has succeeded, whatever cancels it.
#pragma once

#include <weft/core/channel.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>

#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace weft {

namespace detail {

/// One that waits, in its coroutine's frame.
template <class T>
struct channel_waiter {
  intrusive_ptr<event> end = make_intrusive<event>();
  std::optional<T> value;  // to be sent, or received
  bool done = false;       // handed over; under the lock, as what follows
  bool listed = false;
  channel_waiter* next = nullptr;
  channel_waiter* previous = nullptr;
};

/// Those who wait, in turn.
template <class T>
class channel_line {
 public:
  [[nodiscard]] bool empty() const noexcept { return !first_; }
  void push(channel_waiter<T>& w) noexcept {
    w.listed = true;
    w.previous = last_;
    (last_ ? last_->next : first_) = &w;
    last_ = &w;
  }
  void remove(channel_waiter<T>& w) noexcept {
    if (!std::exchange(w.listed, false)) return;
    (w.previous ? w.previous->next : first_) = w.next;
    (w.next ? w.next->previous : last_) = w.previous;
  }
  [[nodiscard]] channel_waiter<T>& pop() noexcept {
    channel_waiter<T>& w = *first_;
    remove(w);
    return w;
  }

 private:
  channel_waiter<T>* first_ = nullptr;
  channel_waiter<T>* last_ = nullptr;
};

template <class T>
struct channel_state final : ref_counted {
  explicit channel_state(std::size_t capacity) : ring(capacity) {}

  // Under the lock. What is in `woken` afterwards is to be set behind it.

  /// Hands `value` to a receiver, or keeps it. False: there is no room, and it is left alone.
  [[nodiscard]] bool offer(T& value, intrusive_ptr<event>& woken) noexcept {
    if (!receivers.empty()) {
      channel_waiter<T>& to = receivers.pop();
      to.value.emplace(std::move(value));
      to.done = true;
      woken = to.end;
    } else if (count < ring.size()) {
      put(value);
    } else {
      return false;
    }
    return true;
  }
  /// The oldest value, if there is one.
  void take(std::optional<T>& out, intrusive_ptr<event>& woken) noexcept {
    if (count == 0) return;
    out.emplace(std::move(*ring[first]));
    ring[first].reset();
    first = (first + 1) % ring.size();
    --count;
    if (senders.empty()) return;
    channel_waiter<T>& from = senders.pop();
    put(*from.value);
    from.done = true;
    woken = from.end;
  }
  void put(T& value) noexcept { ring[(first + count++) % ring.size()].emplace(std::move(value)); }

  std::mutex mutex;
  std::vector<std::optional<T>> ring;
  std::size_t first = 0, count = 0;
  bool closed = false;
  channel_line<T> senders;    // only while the ring is full
  channel_line<T> receivers;  // only while it is empty
};

/// Takes a waiter out of its line when its coroutine goes on, or is destroyed.
template <class T>
class channel_place {
 public:
  channel_place(channel_state<T>& s, channel_line<T>& line, channel_waiter<T>& w) noexcept
      : state_(s), line_(line), waiter_(w) {}
  channel_place(const channel_place&) = delete;
  channel_place& operator=(const channel_place&) = delete;
  ~channel_place() {
    const std::lock_guard lock(state_.mutex);
    line_.remove(waiter_);
  }
  /// Whether what it waited for was done, though it may have been cancelled meanwhile. If not, it
  /// will not be.
  [[nodiscard]] bool was_served() const noexcept {
    const std::lock_guard lock(state_.mutex);
    line_.remove(waiter_);
    return waiter_.done;
  }

 private:
  channel_state<T>& state_;
  channel_line<T>& line_;
  channel_waiter<T>& waiter_;
};

[[noreturn]] inline void refuse_closed_channel() {
  throw rpc_error(errc::closed, "the channel is closed");
}

}  // namespace detail

template <class T>
channel<T>::channel(std::size_t capacity) {
  if (capacity == 0) throw rpc_error(errc::invalid_argument, "a channel needs room for one value");
  state_ = make_intrusive<detail::channel_state<T>>(capacity);
}

template <class T>
bool channel<T>::try_send(T&& value) const {
  intrusive_ptr<event> woken;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed || !state_->offer(value, woken)) return false;
  }
  if (woken) woken->set();
  return true;
}

template <class T>
std::optional<T> channel<T>::try_receive() const {
  intrusive_ptr<event> woken;
  std::optional<T> out;
  {
    const std::lock_guard lock(state_->mutex);
    state_->take(out, woken);
  }
  if (woken) woken->set();
  return out;
}

template <class T>
asio::awaitable<void> channel<T>::send_in_turn(channel self, T value) {
  if (self.try_send(std::move(value))) co_return;
  detail::channel_state<T>& s = *self.state_;
  detail::channel_waiter<T> me;
  asio::awaitable<void> waits = event::wait(me.end);
  const detail::channel_place<T> place(s, s.senders, me);
  intrusive_ptr<event> woken;
  bool sent = false;  // meanwhile; once it is in line, others write what it has
  {
    const std::lock_guard lock(s.mutex);
    if (s.closed) detail::refuse_closed_channel();
    sent = s.offer(value, woken);
    if (!sent) {
      me.value.emplace(std::move(value));
      s.senders.push(me);
    }
  }
  if (woken) woken->set();
  if (sent) co_return;
  try {
    co_await std::move(waits);
  } catch (...) {
    if (!place.was_served()) throw;
  }
  if (!place.was_served()) detail::refuse_closed_channel();
}

template <class T>
asio::awaitable<std::optional<T>> channel<T>::receive_in_turn(channel self) {
  detail::channel_state<T>& s = *self.state_;
  detail::channel_waiter<T> me;
  me.value = self.try_receive();
  if (me.value) co_return std::move(me.value);
  asio::awaitable<void> waits = event::wait(me.end);
  const detail::channel_place<T> place(s, s.receivers, me);
  intrusive_ptr<event> woken;
  bool received = false;  // meanwhile; once it is in line, others write what it has
  {
    const std::lock_guard lock(s.mutex);
    s.take(me.value, woken);
    received = me.value.has_value();
    if (!received && s.closed) co_return std::nullopt;
    if (!received) s.receivers.push(me);
  }
  if (woken) woken->set();
  if (received) co_return std::move(me.value);
  try {
    co_await std::move(waits);
  } catch (...) {
    if (!place.was_served()) throw;
  }
  co_return std::move(me.value);
}

template <class T>
void channel<T>::close() const noexcept {
  detail::channel_state<T>& s = *state_;
  for (;;) {
    intrusive_ptr<event> told;
    {
      const std::lock_guard lock(s.mutex);
      s.closed = true;
      if (!s.senders.empty()) {
        told = s.senders.pop().end;
      } else if (!s.receivers.empty()) {
        told = s.receivers.pop().end;
      }
    }
    if (!told) return;
    told->set();
  }
}
template <class T>
bool channel<T>::is_closed() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->closed;
}
template <class T>
std::size_t channel<T>::size() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->count;
}
template <class T>
std::size_t channel<T>::capacity() const noexcept {
  return state_->ring.size();
}

}  // namespace weft
