// SPDX-License-Identifier: BSL-1.0
// What waits on an io_context without being one of its operations. When the io_context goes, so do
// the coroutines that wait here, as they do in its own operations.
#pragma once

#include <weft/core/ref.hpp>

#include <asio/execution_context.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace weft::detail {

/// Base of a waiter. `enter` and `leave` at most once each.
class guest : public ref_counted {
 public:
  /// Destroys what waits, without running it. May come while the waiter completes.
  virtual void abandon() noexcept = 0;

  void enter(asio::execution_context& context);
  void leave() noexcept;

 private:
  friend class waiting_room;
  struct guests {
    std::mutex lock;
    guest* first = nullptr;  // each holds one count
  };
  /// Under the lock.
  void unlink() noexcept {
    (previous_ ? previous_->next_ : room_->first) = next_;
    if (next_) next_->previous_ = previous_;
    previous_ = next_ = nullptr;
  }

  std::shared_ptr<guests> room_;  // set while inside
  guest* previous_ = nullptr;
  guest* next_ = nullptr;
};

class waiting_room final : public asio::execution_context::service {
 public:
  using key_type = waiting_room;
  inline static asio::execution_context::id id;

  explicit waiting_room(asio::execution_context& context) : service(context) {}
  void shutdown() override {
    while (const ref<guest> next = take()) next->abandon();
  }

 private:
  friend class guest;
  [[nodiscard]] ref<guest> take() {
    const std::lock_guard hold(guests_->lock);
    ref<guest> first(guests_->first);
    if (!first) return first;
    first->unlink();
    first->room_.reset();
    first->release();  // the room's count; `first` has its own
    return first;
  }

  const std::shared_ptr<guest::guests> guests_ = std::make_shared<guest::guests>();
};

inline void guest::enter(asio::execution_context& context) {
  room_ = asio::use_service<waiting_room>(context).guests_;
  const std::lock_guard hold(room_->lock);
  next_ = room_->first;
  if (next_) next_->previous_ = this;
  room_->first = this;
  retain();
}

inline void guest::leave() noexcept {
  const std::shared_ptr<guests> room = room_;
  if (!room) return;
  {
    const std::lock_guard hold(room->lock);
    if (!room_) return;
    unlink();
    room_.reset();
  }
  release();
}

}  // namespace weft::detail
