// SPDX-License-Identifier: BSL-1.0
// The answer to a call, and who waits for it.
//
//   wait_for_reply ─► reply_waiter in the link's own memory ─► complete: the handler runs on its
//                                                              executor, in its scope
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

/// A reply on its way to its caller; recycled, so that waiting coroutines stay small.
struct held_reply final : ref_counted, incoming_message {
  explicit held_reply(incoming_message&& m) noexcept : incoming_message(std::move(m)) {}
  static void* operator new(std::size_t size) { return detail::recycled_new(size); }
  static void operator delete(void* block, std::size_t size) noexcept {
    detail::recycled_delete(block, size);
  }
};

/// What a caller resumes with: a reply, or why there is none.
struct call_result {
  intrusive_ptr<held_reply> reply;
  error failure;
};

/// A request that was queued, as its link knows it.
struct sent_request {
  static constexpr std::uint64_t no_frame = ~std::uint64_t{0};
  std::uint64_t call = 0;          ///< the id of the pending call
  std::uint64_t frame = no_frame;  ///< the number of its frame
};

/// Who waits for one reply, without its type. Each of the two ends it, once.
class reply_waiter {
 public:
  enum class resume : std::uint8_t {
    now,   ///< within `complete`, if that is on the handler's executor
    later  ///< never within
  };
  /// Moves the handler out, destroys this, then runs the handler on its executor.
  virtual void complete(call_result result, resume when) = 0;
  virtual void destroy() noexcept = 0;

 protected:
  ~reply_waiter() = default;
};

/// Where callers wait; a link's. The worker's thread only.
class reply_line {
 public:
  /// Memory for one waiter of a pending call.
  static constexpr std::size_t place_size = 136;
  [[nodiscard]] virtual void* place(std::uint64_t call) noexcept = 0;
  /// That call has a waiter from now on. Once for each.
  virtual void enter(const sent_request& which, reply_waiter* who) noexcept = 0;
  /// The caller gives up: the callee is told, and the waiter completes with `cancelled`.
  virtual void cancel(std::uint64_t call) = 0;

 protected:
  ~reply_line() = default;
};

/// Has `handler`, of signature void(call_result), wait for the reply to a request. Its cancellation
/// gives the call up; it is called on its associated executor.
template <class Handler>
void wait_for_reply(reply_line& line, const sent_request& which, Handler handler);

/// The same as an asynchronous operation of signature void(call_result). Does not throw.
template <class CompletionToken>
auto async_wait_for_reply(reply_line& line, const sent_request& which, CompletionToken&& token);

}  // namespace weft

#include <weft/rpc/impl/reply.hpp>
