// SPDX-License-Identifier: BSL-1.0
// The answer to a call, and the handler that waits for it.
//
//   wait_for_reply ─► reply_handler in the link's own memory ─► resume: the handler runs on its
//                                                               executor, in its scope
#pragma once

#include <weft/core/detail/erased_handler.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft {

/// A reply on its way to its caller. Its memory is recycled; so waiting coroutines stay small.
struct held_reply final : ref_counted, incoming_message {
  explicit held_reply(incoming_message&& m) noexcept : incoming_message(std::move(m)) {}
  static void* operator new(std::size_t size) { return detail::recycled_new(size); }
  static void operator delete(void* block, std::size_t size) noexcept {
    detail::recycled_delete(block, size);
  }
};

/// The caller resumes with this: a reply, or the reason why there is none.
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

/// The handler that waits for one reply.
using reply_handler = detail::erased_handler<void(call_result)>;

/// The line of a link where callers wait. The worker's thread only.
class reply_line {
 public:
  /// The place for the handler of a pending call; it is free.
  [[nodiscard]] virtual reply_handler& place(std::uint64_t call) noexcept = 0;
  /// Says that a handler has taken that place. Once for each call.
  virtual void enter(const sent_request& which) noexcept = 0;
  /// The caller gives up: tells the callee, and calls the caller's handler with `cancelled`.
  virtual void cancel(std::uint64_t call) = 0;

 protected:
  ~reply_line() = default;
};

/// Lets `handler`, of signature void(call_result), wait for the reply to a request. It is called on
/// its associated executor. Its cancellation gives the call up.
template <class Handler>
void wait_for_reply(reply_line& line, const sent_request& which, Handler handler);

/// The same as an asynchronous operation of signature void(call_result). Does not throw.
template <class CompletionToken>
auto async_wait_for_reply(reply_line& line, const sent_request& which, CompletionToken&& token);

}  // namespace weft

#include <weft/rpc/impl/reply.hpp>
