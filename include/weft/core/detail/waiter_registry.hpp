// SPDX-License-Identifier: BSL-1.0
// What waits on an io_context without being one of its operations. When the io_context goes, so do
// the coroutines that wait here, as they do in its own operations.
//
//   waiter ──enter──► registry ──leave──► context_guard ──► posted to the io_context, by any thread
//                        └──shutdown──► abandon(), on the thread that ends the io_context
#pragma once

#include <weft/config.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/execution_context.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace weft::detail {

class registered_waiter;

/// The waiters of one io_context. Thread safe; may outlive it, and is closed then.
class waiter_registry {
 public:
  /// While one lives, the io_context does too: held by another thread that posts to it. Short, and
  /// without a lock that the end of an io_context could need.
  class context_guard {
   public:
    context_guard() noexcept = default;
    context_guard(context_guard&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)) {}
    context_guard& operator=(context_guard&&) = delete;
    ~context_guard() {
      if (registry_) registry_->guards_.fetch_sub(1);
    }
    /// False: the io_context is gone, or about to go.
    explicit operator bool() const noexcept { return registry_ != nullptr; }

   private:
    friend class waiter_registry;
    friend class registered_waiter;
    explicit context_guard(waiter_registry* of) noexcept : registry_(of) {
      registry_->guards_.fetch_add(1);
    }
    waiter_registry* registry_ = nullptr;  // lives as long as its io_context at least
  };

  [[nodiscard]] static std::shared_ptr<waiter_registry> of(asio::execution_context& context);
  /// Takes no lock: `close` waits for whoever did not see that it has begun.
  [[nodiscard]] static context_guard
  guard_context(const std::shared_ptr<waiter_registry>& self) noexcept {
    context_guard counted(self.get());
    if (self->closed_.load()) return {};
    return counted;
  }

 private:
  friend class registered_waiter;
  friend class waiter_service;
  void close() noexcept;

  std::mutex lock_;
  registered_waiter* first_ = nullptr;
  std::atomic<bool> closed_{false};
  std::atomic<int> guards_{0};
};

/// Base of a waiter. `enter` at most once, before any other thread knows of it.
class registered_waiter : public ref_counted {
 public:
  /// What keeps it while it is registered.
  enum class kept : std::uint8_t {
    by_registry,  ///< for one wait, which nobody else needs to hold
    by_owner      ///< for as long as it lives: it waits again and again, without the lock
  };

  ~registered_waiter() override {
    if (!home_ || how_ == kept::by_registry) return;
    const std::lock_guard hold(home_->lock_);
    if (inside_) unlink();
  }

  /// Destroys what waits, without running it: no `leave` gave a guard, and none will.
  virtual void abandon() noexcept = 0;

  void enter(std::shared_ptr<waiter_registry> home, kept how = kept::by_registry) noexcept;
  /// Of one that the registry keeps: a guard, once, if it was not abandoned: whoever has it
  /// completes the wait.
  [[nodiscard]] waiter_registry::context_guard leave() noexcept;

 protected:
  /// Where it entered.
  [[nodiscard]] const std::shared_ptr<waiter_registry>& home() const noexcept { return home_; }

 private:
  friend class waiter_registry;
  /// Under the lock. The registry's count, if it has one, is the caller's then.
  void unlink() noexcept {
    (previous_ ? previous_->next_ : home_->first_) = next_;
    if (next_) next_->previous_ = previous_;
    previous_ = next_ = nullptr;
    inside_ = false;
  }

  std::shared_ptr<waiter_registry> home_;  // constant once entered, as the next
  kept how_ = kept::by_registry;
  bool inside_ = false;  // under the registry's lock, as what follows
  registered_waiter* previous_ = nullptr;
  registered_waiter* next_ = nullptr;
};

class waiter_service final : public asio::execution_context::service {
 public:
  using key_type = waiter_service;
  WEFT_PROCESS_WIDE inline static asio::execution_context::id id;

  explicit waiter_service(asio::execution_context& context) : service(context) {}
  void shutdown() override { registry_->close(); }

 private:
  friend class waiter_registry;
  const std::shared_ptr<waiter_registry> registry_ = std::make_shared<waiter_registry>();
};

inline std::shared_ptr<waiter_registry> waiter_registry::of(asio::execution_context& context) {
  return asio::use_service<waiter_service>(context).registry_;
}

inline void waiter_registry::close() noexcept {
  for (;;) {
    intrusive_ptr<registered_waiter> next;
    {
      const std::lock_guard hold(lock_);
      closed_.store(true);
      registered_waiter* const first = first_;
      if (!first) break;
      next = intrusive_ptr<registered_waiter>::if_alive(first);
      first->unlink();
      // The registry's count; `next` has its own.
      if (first->how_ == registered_waiter::kept::by_registry) first->release();
    }
    if (next) next->abandon();
  }
  while (guards_.load() != 0) std::this_thread::yield();  // each is about to be given back
}

inline void registered_waiter::enter(std::shared_ptr<waiter_registry> home, kept how) noexcept {
  home_ = std::move(home);
  how_ = how;
  const std::lock_guard hold(home_->lock_);
  next_ = home_->first_;
  if (next_) next_->previous_ = this;
  home_->first_ = this;
  inside_ = true;
  if (how_ == kept::by_registry) retain();
}

inline waiter_registry::context_guard registered_waiter::leave() noexcept {
  if (!home_) return {};
  const intrusive_ptr<registered_waiter> held(this);
  const std::lock_guard hold(home_->lock_);
  if (!inside_) return {};
  unlink();
  release();
  return waiter_registry::context_guard(home_.get());
}

}  // namespace weft::detail
