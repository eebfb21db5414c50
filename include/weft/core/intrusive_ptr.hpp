// SPDX-License-Identifier: BSL-1.0
// Intrusive reference counting: one pointer wide, so that handles fit small buffers.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace weft {

/// Base of objects that `intrusive_ptr<T>` holds. Only the count is thread safe, not the object.
class ref_counted {
 public:
  ref_counted() = default;
  ref_counted(const ref_counted&) = delete;
  ref_counted& operator=(const ref_counted&) = delete;
  virtual ~ref_counted() = default;

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// False: the last handle is gone, the object is being destroyed.
  [[nodiscard]] bool retain_if_alive() const noexcept {
    std::uint32_t count = count_.load(std::memory_order_relaxed);
    while (count != 0 &&
           !count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
    }
    return count != 0;
  }
  void release() const noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  [[nodiscard]] std::uint32_t use_count() const noexcept {
    return count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 private:
  mutable std::atomic<std::uint32_t> count_{0};
};

/// Shared ownership of a `ref_counted` object. Distinct handles may be used from different threads.
template <class T>
class intrusive_ptr {
 public:
  constexpr intrusive_ptr() noexcept = default;
  constexpr intrusive_ptr(std::nullptr_t) noexcept {}
  explicit intrusive_ptr(T* object) noexcept : object_(object) {
    if (object_) object_->retain();
  }
  intrusive_ptr(const intrusive_ptr& other) noexcept : intrusive_ptr(other.object_) {}
  intrusive_ptr(intrusive_ptr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  intrusive_ptr(const intrusive_ptr<U>& other) noexcept
      : intrusive_ptr(static_cast<T*>(other.get())) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  intrusive_ptr(intrusive_ptr<U>&& other) noexcept : object_(other.detach()) {}
  intrusive_ptr& operator=(intrusive_ptr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~intrusive_ptr() {
    if (object_) object_->release();
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const intrusive_ptr& a, const intrusive_ptr& b) noexcept {
    return a.object_ == b.object_;
  }
  /// Gives up the handle without releasing it.
  [[nodiscard]] T* detach() noexcept { return std::exchange(object_, nullptr); }
  /// A handle of an object that was found without one; null if it is being destroyed. Call it under
  /// a lock that the object's destructor takes, too.
  [[nodiscard]] static intrusive_ptr if_alive(T* object) noexcept {
    intrusive_ptr out;
    if (object && object->retain_if_alive()) out.object_ = object;
    return out;
  }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
[[nodiscard]] intrusive_ptr<T> make_intrusive(Args&&... args) {
  return intrusive_ptr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace weft
