// SPDX-License-Identifier: BSL-1.0
// Parts of a request about objects that stay where they are: the object that its function runs on,
// and the object that its result becomes. For services and the engine.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/type_key.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/message_extensions.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft {

struct call_target;

/// A call that waits for its object.
class object_waiter : public ref_counted {
 public:
  /// Says that the object or a failure is there. At most once, on any thread, under no lock.
  virtual void object_there() noexcept = 0;

  /// Calls `who->object_there()`. If that tells further waiters, they follow behind it, not inside
  /// it, because users' chains may be long: if an object fails, a call on it fails, then the calls
  /// that wait for its result, and so on.
  WEFT_PROCESS_WIDE static void tell(intrusive_ptr<object_waiter> who) noexcept {
    struct line {
      intrusive_ptr<object_waiter> first;
      object_waiter* last = nullptr;
    };
    constinit thread_local line* told = nullptr;  // by the outermost
    line here;
    line& behind = told ? *told : here;
    intrusive_ptr<object_waiter>& end = behind.last ? behind.last->told_next_ : behind.first;
    behind.last = who.get();
    end = std::move(who);
    if (told) return;
    told = &here;
    while (const intrusive_ptr<object_waiter> next = std::move(here.first)) {
      here.first = std::move(next->told_next_);
      if (!here.first) here.last = nullptr;
      next->object_there();
    }
    told = nullptr;
  }

 private:
  friend class unmade_object;
  std::uint64_t place_ = 0;  // where it waits; the unmade_object's own
  intrusive_ptr<object_waiter> told_next_;
};

/// An object that is still being made, or whose request has not arrived yet. Thread safe.
class unmade_object : public ref_counted {
 public:
  /// Keeps `who` until the object or a failure is there. Returns false if one is there already;
  /// `who` is then neither kept nor told.
  [[nodiscard]] virtual bool enter(const intrusive_ptr<object_waiter>& who) = 0;
  /// No longer keeps `who`, if it does. A thread that is telling it already may still do so.
  virtual void leave(const object_waiter& who) noexcept = 0;
  /// Writes the object or the failure, if there is one by now.
  virtual void look(call_target& out) = 0;

  /// The number of its place, over all objects of one worker; it waits in one place at a time. For
  /// the unmade_object that keeps it.
  [[nodiscard]] static std::uint64_t& place(object_waiter& w) noexcept { return w.place_; }
  [[nodiscard]] static std::uint64_t place(const object_waiter& w) noexcept { return w.place_; }
};

/// Part of a request whose function runs on an object that the receiver owns. The service that
/// resolves the object fills it. While `unmade` is set, the function does not run: the request's
/// link waits for the object. The link itself ends the wait if the caller gives up, at the
/// deadline, or if the link is lost.
struct call_target : message_extension {
  /// Names the reference that was used, at this worker: calls by one keep their order.
  std::pair<std::uint32_t, std::uint64_t> reference;
  std::shared_ptr<void> object;
  type_id type;  ///< of the object
  error failure;
  intrusive_ptr<unmade_object> unmade;
};

/// Part of a request whose result stays with the receiver. Exactly one of the two is called; if
/// `keep` throws, `fail` is called, too.
struct result_keeper : message_extension {
  /// `type` is the value's.
  virtual void keep(std::shared_ptr<void> value, type_id type) = 0;
  virtual void fail(const error& why) noexcept = 0;
};

}  // namespace weft
