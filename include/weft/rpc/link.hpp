// SPDX-License-Identifier: BSL-1.0
// The link to one peer, as calls and services know it. Its one implementation is engine::link. Only
// code that makes a worker names it, so a file with a call compiles none of its bodies.
//
//   idle ─► connecting ─► up ─► down
//     ▲         │                 for ever, once it is lost or the run is over
//     └─────────┘ nothing waits
//
// While it is connecting, it tries again and again. A shortage, a pause or a refusal is no loss.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/outgoing_call.hpp>
#include <weft/rpc/reply.hpp>
#include <weft/wire/header.hpp>
#include <weft/wire/message.hpp>

#include <asio/awaitable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weft {

class link : public ref_counted {
 public:
  enum class state : std::uint8_t { idle, connecting, up, down };

  [[nodiscard]] worker& self() const noexcept { return me_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] virtual state current_state() const = 0;
  /// Name of the transport, empty while not connected.
  [[nodiscard]] virtual std::string transport() const = 0;
  /// Why it is down, or why its last try to connect failed.
  [[nodiscard]] virtual error reason() const = 0;

  // ── calls ──

  enum class sending : std::uint8_t {
    sent,    ///< this thread must await the reply before it does anything else
    failed,  ///< it is not sent, and never will be
    later    ///< use `send_later`: there is no room now, or this is not the worker's thread
  };
  /// Begins the call, and sends it if that needs no wait. Any thread. Sets `why` if it failed.
  [[nodiscard]] virtual sending send_now(outgoing_call& c, const request_body& body,
                                         error& why) noexcept = 0;
  /// As send_now, but waits in line for room, then for the reply. On any executor. The result says
  /// how far the call got, even if something throws on the way.
  [[nodiscard]] virtual asio::awaitable<call_result> send_later(outgoing_call& c,
                                                                const request_body& body) = 0;
  /// Queues a request without a reply. Any thread. Throws rpc_error.
  virtual void post(outgoing_call& c, const request_body& body) = 0;
  /// Throws rpc_error too_many_calls if there is no room for a request now, or others wait for it.
  virtual void require_can_send() = 0;
  /// The call that `call_settings::given` was for has ended.
  virtual void no_longer_given(const given_memory& where) noexcept { static_cast<void>(where); }
  /// Waits in line for room. `limit` and scope as of a call. On any executor. Throws rpc_error.
  [[nodiscard]] virtual asio::awaitable<void> wait_writable(std::optional<duration> limit) = 0;
  /// The line where callers wait for replies. Worker's thread.
  [[nodiscard]] virtual reply_line& replies() noexcept = 0;
  /// Adds to an error what the caller knows of its call.
  [[nodiscard]] virtual error describe(const error& e, const outgoing_call& c) const noexcept = 0;
  /// The exception that is being handled, as a described error of a call that got as far as `ran`.
  [[nodiscard]] virtual error caught(const outgoing_call& c, call_progress ran) const noexcept = 0;

  // ── what services send; any thread ──

  /// Queues a sealed frame without writing; a service may do so under its lock. False: link down.
  virtual bool append(frame&& f) = 0;
  /// Writes the queued frames now, or at the end of this thread's round or batch.
  virtual void flush() noexcept = 0;
  /// Writes the queued frames now.
  virtual void write_now() noexcept = 0;
  /// As flush, for frames for which nobody waits. They are written with the next frame for which
  /// somebody waits, or soon.
  virtual void flush_late() noexcept = 0;
  /// Frames that wait to be written.
  [[nodiscard]] virtual std::size_t waiting() const = 0;
  /// The peer is lost. Closes the connection and stops reading at once. Then, on the worker's
  /// thread and behind all that came before, calls fail and services are told.
  virtual void mark_down(error reason) noexcept = 0;

 protected:
  link(worker& me, std::uint32_t rank) noexcept : me_(me), rank_(rank) {}

  worker& me_;
  const std::uint32_t rank_;

 private:
  friend class engine::helper;
  std::atomic<bool> to_flush_{false};  // in that list of the helper; raised under its lock
  std::atomic<bool> put_off_{false};   // likewise
};

inline outgoing_call::outgoing_call(link& to, const function_entry& what,
                                    detail::call_settings s) noexcept
    : to_(&to), function_(&what), settings_(s) {}

}  // namespace weft
