// SPDX-License-Identifier: BSL-1.0
// What waits on an io_context without being one of its operations. When the io_context goes, so do
// the coroutines that wait here, as they do in its own operations.
//
//   guest ──enter──► room ──leave──► pass ──► posted to the io_context, by any thread
//                      └──shutdown──► abandon(), on the thread that ends the io_context
#pragma once

#include <weft/core/detail/ready_line.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/execution_context.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace weft::detail {

class guest;

/// The guests of one io_context. Thread safe; may outlive it, and is closed then.
class room {
 public:
  /// While one lives, the io_context does too: held by another thread that posts to it. Short, and
  /// without a lock that the end of an io_context could need.
  class pass {
   public:
    pass() noexcept = default;
    pass(pass&& other) noexcept : room_(std::exchange(other.room_, nullptr)) {}
    pass& operator=(pass&&) = delete;
    ~pass() {
      if (room_) room_->passes_.fetch_sub(1);
    }
    /// False: the io_context is gone, or about to go.
    explicit operator bool() const noexcept { return room_ != nullptr; }

   private:
    friend class room;
    friend class guest;
    explicit pass(std::shared_ptr<room> to) noexcept : room_(std::move(to)) {
      room_->passes_.fetch_add(1);
    }
    std::shared_ptr<room> room_;
  };

  [[nodiscard]] static std::shared_ptr<room> of(asio::execution_context& context);
  [[nodiscard]] static pass enter(const std::shared_ptr<room>& self) {
    const std::lock_guard hold(self->lock_);
    return self->closed_ ? pass() : pass(self);
  }

 private:
  friend class guest;
  friend class waiting_room;
  void close() noexcept;

  std::mutex lock_;
  guest* first_ = nullptr;  // each holds one count
  bool closed_ = false;
  std::atomic<int> passes_{0};
};

/// Base of a waiter. `enter` at most once, before any other thread knows of it.
class guest : public ready_line::item {
 public:
  /// Destroys what waits, without running it: no `leave` gave a pass, and none will.
  virtual void abandon() noexcept = 0;

  void enter(std::shared_ptr<room> home) noexcept;
  /// A pass, once, if this entered and was not abandoned: whoever has it completes the wait.
  [[nodiscard]] room::pass leave() noexcept;

 private:
  friend class room;
  /// Under the lock. The room's count is the caller's then.
  void unlink() noexcept {
    (previous_ ? previous_->next_ : room_->first_) = next_;
    if (next_) next_->previous_ = previous_;
    previous_ = next_ = nullptr;
    inside_ = false;
  }

  std::shared_ptr<room> room_;  // constant once entered; what follows is under its lock
  guest* previous_ = nullptr;
  guest* next_ = nullptr;
  bool inside_ = false;
};

class waiting_room final : public asio::execution_context::service {
 public:
  using key_type = waiting_room;
  inline static asio::execution_context::id id;

  explicit waiting_room(asio::execution_context& context) : service(context) {}
  void shutdown() override { room_->close(); }

 private:
  friend class room;
  const std::shared_ptr<room> room_ = std::make_shared<room>();
};

inline std::shared_ptr<room> room::of(asio::execution_context& context) {
  return asio::use_service<waiting_room>(context).room_;
}

inline void room::close() noexcept {
  for (;;) {
    intrusive_ptr<guest> next;
    {
      const std::lock_guard hold(lock_);
      closed_ = true;
      if (!first_) break;
      next = intrusive_ptr<guest>(first_);
      next->unlink();
      next->release();  // the room's count; `next` has its own
    }
    next->abandon();
  }
  while (passes_.load() != 0) std::this_thread::yield();  // each is about to be given back
}

inline void guest::enter(std::shared_ptr<room> home) noexcept {
  room_ = std::move(home);
  const std::lock_guard hold(room_->lock_);
  next_ = room_->first_;
  if (next_) next_->previous_ = this;
  room_->first_ = this;
  inside_ = true;
  retain();
}

inline room::pass guest::leave() noexcept {
  if (!room_) return {};
  const intrusive_ptr<guest> held(this);
  const std::lock_guard hold(room_->lock_);
  if (!inside_) return {};
  unlink();
  release();
  return room::pass(room_);
}

}  // namespace weft::detail
