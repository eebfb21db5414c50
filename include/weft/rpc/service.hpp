// SPDX-License-Identifier: BSL-1.0
// What is built on calls without `rpc/` knowing it: references, autograd. A service adds a section
// to messages, reads it on the other side, and owns frame kinds for its own protocol.
//
//   caller:  attach ─► (framed, queued) sent | dropped        callee:  arrive ─► function runs
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/wire/header.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/message_extensions.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft {

class link;

/// One slot a service in a worker; fixed, so that `me.use<S>()` is an array access.
enum class service_id : std::uint8_t { rref, autograd, reserved2, reserved3, count };

/// Members may be called from any thread; a service guards its state with its own short lock and
/// runs no user code and no destructor of a user's value under it.
class service {
 public:
  virtual ~service() = default;

  /// Whether frames of that kind are this service's.
  [[nodiscard]] virtual bool owns(frame_kind) const noexcept { return false; }

  /// Before a request, reply or failure to `to` is framed. Adds sections; keeps what it must
  /// remember in a part of `m.record()`. Exactly one of `sent` and `dropped` follows, with that
  /// record. May throw rpc_error; then nothing is sent and `dropped` follows.
  virtual void attach(link& to, const frame_header& header, message& m) {
    static_cast<void>(to), static_cast<void>(header), static_cast<void>(m);
  }
  virtual void sent(link& to, message_extensions& record) {
    static_cast<void>(to), static_cast<void>(record);
  }
  virtual void dropped(link& to, message_extensions& record) {
    static_cast<void>(to), static_cast<void>(record);
  }

  /// A request, reply or failure came: reads its section, in the order of sending. An error closes
  /// the link. Called before the function runs and before the caller resumes. Of a message that is
  /// `lacking()` the function does not run, and the caller gets that error.
  virtual expected<void> arrive(link& from, incoming_message& m) {
    static_cast<void>(from), static_cast<void>(m);
    return {};
  }
  /// A frame of a kind that it owns; if it is `lacking()`, the payload is there and the tensors are
  /// not. An error closes the link.
  virtual expected<void> frame(link& from, incoming_message& m) {
    static_cast<void>(from), static_cast<void>(m);
    return {};
  }

  /// After `cork::hold`, at the end of that batch, or after `worker::hold_turn`: what is sent now
  /// goes with what others have sent there.
  virtual void batch_ends() noexcept {}
  virtual void up(link& peer) { static_cast<void>(peer); }
  /// The peer is lost, for ever. Called once, after everything that came from it.
  virtual void down(link& peer, const error& reason) {
    static_cast<void>(peer), static_cast<void>(reason);
  }
  /// The run has failed: whoever waits for something here, or will, is told why. Worker's thread.
  virtual void fail_waits(const error& why) { static_cast<void>(why); }
  /// An exception in words, for whom it is sent to; nothing if `what()` will do.
  [[nodiscard]] virtual std::optional<std::string> in_words(const std::exception& e) const {
    static_cast<void>(e);
    return std::nullopt;
  }
  /// The run is over: let go of what is held elsewhere. Ends by `deadline`.
  virtual asio::awaitable<void> stop(time_point deadline) {
    static_cast<void>(deadline);
    co_return;
  }
  /// The worker is about to go. Handles that other threads still have must not touch it after this.
  virtual void detach() noexcept {}
};

struct call_target;

/// A call that waits for its object.
class object_waiter : public ref_counted {
 public:
  /// The object or a failure is there. At most once, on any thread, under nobody's lock.
  virtual void object_there() noexcept = 0;

  /// Tells `who`. Those who are told from within follow behind, not inside: a call whose object
  /// failed has failed as well, then who waits for its result, and so on, as long as users' chains
  /// are.
  static void tell(intrusive_ptr<object_waiter> who) noexcept {
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

/// An object that is still being made, or whose making has not arrived yet. Thread safe.
class unmade_object : public ref_counted {
 public:
  /// Keeps `who` until the object or a failure is there. False: one is there already, and `who` is
  /// neither kept nor told.
  [[nodiscard]] virtual bool enter(const intrusive_ptr<object_waiter>& who) = 0;
  /// No longer keeps `who`, if it does; what is telling it already may still do so.
  virtual void leave(const object_waiter& who) noexcept = 0;
  /// Writes what there is by now.
  virtual void look(call_target& out) = 0;

 protected:
  [[nodiscard]] static std::uint64_t& place(object_waiter& w) noexcept { return w.place_; }
  [[nodiscard]] static std::uint64_t place(const object_waiter& w) noexcept { return w.place_; }
};

/// Part of a request whose function runs on an object that the receiver owns. Filled by the service
/// that resolves the object. While `unmade` is set the function is not run: the request's link
/// waits for the object, and ends the wait itself when the caller gives up, at the deadline, or
/// when the link is lost.
struct call_target : message_extension {
  std::shared_ptr<void> object;
  const void* type = nullptr;  ///< `type_key<T>` of the object
  error failure;
  intrusive_ptr<unmade_object> unmade;
};

/// Part of a request whose result stays with the receiver. Exactly one of the two is called, but
/// `fail` too after a `keep` that threw.
struct result_keeper : message_extension {
  /// `type` is the value's `type_key`. May throw std::bad_alloc; then nothing is kept.
  virtual void keep(std::shared_ptr<void> value, const void* type) = 0;
  virtual void fail(const error& why) noexcept = 0;
};

namespace detail {
template <class T>
inline constexpr char type_tag = 0;
}
/// A key for T, equal within this program only.
template <class T>
inline constexpr const void* type_key = &detail::type_tag<T>;

}  // namespace weft
