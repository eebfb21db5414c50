// SPDX-License-Identifier: BSL-1.0
// How a call is repeated: its attempts, and the pauses between them. When, decides
// rpc/detail/retry_course.hpp. Compiled once (weft/src_base.hpp).
#pragma once

#include <weft/core/future.hpp>
#include <weft/core/sleep_for.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/detail/retry_course.hpp>
#include <weft/rpc/identity.hpp>
#include <weft/rpc/impl/peer.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/outgoing_call.hpp>
#include <weft/rpc/reply.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/deferred.hpp>
#include <asio/error.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// On any executor: where that has an io_context, there, else on the worker's. Throws when it is
/// cancelled, also at its end: what is sent after it must be awaited.
WEFT_DECL asio::awaitable<void> pause(worker& me, time_point until) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  if (asio::io_context* const here = io_context_of(executor)) {
    co_await wait_until(me.time(), *here, until);
  } else {
    auto there = start_on(me.executor_in(nullptr), wait_until(me.time(), context_of(me), until));
    co_await std::move(there).get();
  }
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  const auto state = co_await asio::this_coro::cancellation_state;
  if (throws && state.cancelled() != asio::cancellation_type::none) {
    throw std::system_error(asio::error::operation_aborted);
  }
}

/// Makes the call until there is a reply, or no other attempt. `c` is the whole of it, each attempt
/// a copy. What is thrown on the way ends it.
WEFT_DECL asio::awaitable<call_result> repeat(outgoing_call& c, const request_body& body, retry how,
                                              repeats what) {
  link& to = c.to();
  worker& me = to.self();
  const outgoing_call unbegun = c;
  const time_point begun = me.time().now();
  c.begin(begun, c.settings().deadline_from(begun, me.settings().call_deadline));
  retry_course course(how, what, c.deadline());
  for (;;) {
    outgoing_call attempt = unbegun;
    const time_point now = me.time().now();
    attempt.begin(now, course.next(now));
    call_result r;
    try {
      switch (to.send_now(attempt, body, r.failure)) {
      case link::sending::sent:
        r = co_await async_wait_for_reply(to.replies(), attempt.sent(), asio::deferred);
        break;
      case link::sending::later:
        r = co_await to.send_later(attempt, body);
        break;
      case link::sending::failed:
        break;
      }
    } catch (...) {  // as it was cancelled
      r.failure = to.caught(attempt, call_progress::maybe_executed);
    }
    c.waits(attempt.waited());
    if (r.reply) co_return r;
    const auto until = course.pause_after(r.failure, me.time().now(), me.random());
    if (!until) co_return call_result{nullptr, course.conclude(r.failure)};
    error stopped;
    try {
      co_await pause(me, *until);
    } catch (...) {
      stopped = to.caught(attempt, call_progress::not_sent);
    }
    if (!stopped) continue;
    if (stopped == errc::cancelled) {
      const error last = std::exchange(
          r.failure, error(errc::cancelled, "the caller gave up in a pause between attempts"));
      r.failure = r.failure.with([&last](error_detail& d) {
        d.cause_code = last.code();
        d.cause = last.shared_detail();
      });
    }  // else there is no memory for a pause
    co_return call_result{nullptr, course.conclude(r.failure)};
  }
}

}  // namespace weft::detail
