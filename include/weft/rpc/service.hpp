// SPDX-License-Identifier: BSL-1.0
// Services are built on calls, and `rpc/` does not know them: references, autograd. A service adds
// a section to messages, reads it on the other side, and owns frame kinds for its own protocol.
//
//   caller:  attach ─► (framed, queued) sent | dropped        callee:  arrive ─► function runs
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/wire/header.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/message_extensions.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft {

class link;

/// One slot a service in a worker; fixed, so that `me.use<S>()` is an array access.
enum class service_id : std::uint8_t { rref, autograd, broadcasts, reserved2, reserved3, count };

/// Members may be called from any thread. A service guards its state with a short lock of its own.
/// Under that lock it runs no user code and no destructor of a user's value.
class service {
 public:
  virtual ~service() = default;

  /// Its bit among those of `message_extensions::service_bits`; 0: it is asked about no message.
  [[nodiscard]] std::uint32_t bit() const noexcept { return bit_; }
  /// The sections that it reads, a bit for each as in `incoming_message::section_bits`.
  [[nodiscard]] std::uint32_t reads() const noexcept { return reads_; }
  [[nodiscard]] static constexpr std::uint32_t bit_of(service_id which) noexcept {
    return 1u << static_cast<unsigned>(which);
  }

  /// Whether frames of that kind are this service's. Kinds from 32 on are not weft's.
  [[nodiscard]] virtual bool owns(frame_kind) const noexcept { return false; }

  /// Called before a request, reply or failure to `to` is framed, if it has something of this
  /// service: a part of the record that names it, or an autograd context around the sender. Adds
  /// sections; keeps its own data in a part of `m.record()`. Exactly one of `sent` and `dropped`
  /// follows, with that record. May throw rpc_error; then nothing is sent and `dropped` follows.
  virtual void attach(link& /*to*/, const frame_header& /*header*/, message& /*m*/) {}
  virtual void sent(link& /*to*/, message_extensions& /*record*/) {}
  virtual void dropped(link& /*to*/, message_extensions& /*record*/) {}

  /// Reads this service's sections of a request, reply or failure that came, in the order of
  /// sending. An error closes the link. Called before the function runs and before the caller
  /// resumes. If the message has an `allocation_error()`, the function does not run, and the caller
  /// gets that error.
  virtual expected<void> arrive(link& from, incoming_message& m) {
    static_cast<void>(from), static_cast<void>(m);
    return {};
  }
  /// Reads a frame of a kind that it owns. If that has an `allocation_error()`, its payload is
  /// there, its tensors are not. An error closes the link.
  virtual expected<void> frame(link& from, incoming_message& m) {
    static_cast<void>(from), static_cast<void>(m);
    return {};
  }

  /// Called after `link_host::hold`, at the end of that round or batch. Frames that are sent now go
  /// with those that others have sent there.
  virtual void batch_ends() noexcept {}
  virtual void up(link& peer) { static_cast<void>(peer); }
  /// The peer is lost, for ever. Called once, after everything that came from it.
  virtual void down(link& /*peer*/, const error& /*reason*/) {}
  /// The run has failed: present and later waits for something here fail with `why`. Worker's
  /// thread.
  virtual void fail_waits(const error& why) { static_cast<void>(why); }
  /// The text of an exception for the worker to which it is sent; std::nullopt if `what()` will do.
  [[nodiscard]] virtual std::optional<std::string> in_words(const std::exception& e) const {
    static_cast<void>(e);
    return std::nullopt;
  }
  /// The run is over: releases objects that other workers hold for this one. Ends by `deadline`.
  virtual asio::awaitable<void> stop(time_point deadline) {
    static_cast<void>(deadline);
    co_return;
  }
  /// The worker is about to end. Handles that other threads still have must not touch it then.
  virtual void detach() noexcept {}

 protected:
  /// Asked about no message.
  service() noexcept = default;
  /// Asked about messages with a part of that service, or with one of these sections. One of a kind
  /// that may be skipped: about all messages with any of those.
  service(service_id which, std::initializer_list<section_kind> sections) noexcept
      : bit_(bit_of(which)) {
    for (const section_kind s : sections) reads_ |= incoming_message::bit_of(s);
  }

 private:
  std::uint32_t bit_ = 0;
  std::uint32_t reads_ = 0;
};

}  // namespace weft
