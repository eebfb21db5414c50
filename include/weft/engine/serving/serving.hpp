// SPDX-License-Identifier: BSL-1.0
// Room serving: a request, from its arrival to its reply. It sees the worker as link_host.hpp, and
// the link that a request came over as request_source.hpp. Begin with served_request.hpp, then
// request_queue.hpp: the way to the worker's thread and to the coroutines that serve. Includes up
// to rref/, and room helper.
//
// This file: a request's function runs, then its reply is sent.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/serving/served_request.hpp>

#include <asio/awaitable.hpp>

namespace weft::engine {

struct serving {
  using request = served_request;
  /// Runs an immediate or plain function on this thread, then replies.
  static void evaluate(served_request& call);
  /// Runs a coroutine function; the reply is sent when it ends.
  static asio::awaitable<void> serve(intrusive_ptr<served_request> call);
  /// Replies that it did not begin, because of the exception in flight.
  static void refuse(served_request& call) noexcept;
  /// Sends the reply or failure.
  static void finish(served_request& call) noexcept;
  /// Its deadline has passed.
  [[nodiscard]] static bool too_late(const served_request& call) noexcept;
  /// Turns the exception in flight into the call's failure.
  static void fail_from_exception(served_request& call) noexcept;

 private:
  static void answer(served_request& call, request_source& peer);
  /// Sends it on to where its object is, and makes what comes back the answer.
  static asio::awaitable<void> forward(served_request& call);
  static void describe_exception(served_request& call);
  /// Of a request that failed for want of memory.
  static void got_no_further(served_request& call, call_progress ran) noexcept;
};

}  // namespace weft::engine
