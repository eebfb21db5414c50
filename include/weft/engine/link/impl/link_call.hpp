// SPDX-License-Identifier: BSL-1.0
// Bodies of ../link.hpp: the caller's half of a call, from its begin to its pending reply.
#pragma once

#include <weft/engine/link/impl/link_send.hpp>
#include <weft/engine/link/no_room.hpp>

#include <asio/deferred.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace weft::engine {

/// Without waiting, and without passing by who waits in line.
inline bool link::can_send_at_once() noexcept {
  return (!has_waiters() || its_turn_.load(std::memory_order_relaxed)) && can_send();
}

inline void link::require_can_send() {
  if (!can_send_at_once()) throw rpc_error(no_room_now(*this));
}

inline asio::awaitable<void> link::wait_writable(std::optional<duration> limit) {
  const intrusive_ptr<link> self(this);
  const time_point deadline =
      detail::call_settings{limit}.deadline_from(me_.time().now(), me_.settings().call_deadline);
  if (me_.on_thread()) co_return co_await wait_writable_until(deadline);
  co_await start_on(me_.executor_in(nullptr), wait_writable_until(deadline)).get();
}
inline asio::awaitable<void> link::wait_writable_until(time_point deadline) {
  const intrusive_ptr<link> self(this);
  tickets mine;
  const bool large = bulk_refused_.exchange(false, std::memory_order_relaxed);
  const auto found =
      co_await find_room(deadline, large ? message_size::large : message_size::any, mine);
  if (!found) throw rpc_error(found.error().with([this](error_detail& d) { d.peer = name(); }));
  // It sends next: those behind would else refuse what it sends, and it them, for ever.
  if (has_waiters()) its_turn_.store(true, std::memory_order_relaxed);
  if (large && !bulk_line_.empty()) bulk_turn_.store(true, std::memory_order_relaxed);
}

/// Waits in line, if anybody does or there is no room.
inline asio::awaitable<expected<void>> link::find_room(time_point deadline, message_size what,
                                                       tickets& mine) {
  const intrusive_ptr<link> self(this);
  if (what == message_size::large && !(bulk_line_.empty() && can_send_bulk())) {
    if (auto ok = co_await wait_in_line(deadline, mine.large, message_size::large); !ok)
      co_return ok;
  }
  if (can_send_at_once()) co_return expected<void>();
  co_return co_await wait_in_line(deadline, mine.any);
}

/// Its time counts from here.
inline void link::begin(outgoing_call& c) const noexcept {
  if (c.has_begun()) return;
  const time_point now = me_.time().now();
  c.begin(now, c.settings().deadline_from(now, me_.settings().call_deadline));
}

inline frame_header link::header_of(const outgoing_call& c) {
  frame_header h;
  h.kind = frame_kind::request;
  h.function = c.function().id;
  h.signature = c.function().signature;
  if (current_scope) {
    h.trace = current_scope->trace;
    h.span = current_scope->span;
  }
  return h;
}

inline error link::describe(const error& e, const outgoing_call& c) const noexcept {
  return e.with([&](error_detail& d) {
    using std::chrono::microseconds;
    if (d.peer.empty()) d.peer = name();
    if (d.peer == name()) d.incarnation = me_.members().members[rank_].incarnation.low;
    if (d.function.empty()) d.function = std::string(c.function().name);
    d.deadline = std::chrono::duration_cast<microseconds>(c.deadline() - c.begun());
    d.elapsed = std::chrono::duration_cast<microseconds>(me_.time().now() - c.begun());
    // A call that waited for its link says what the link waits for.
    if (c.waited() && e.ran() == call_progress::not_sent && e == errc::timed_out) {
      if (const error why = reason()) d.text += "; " + why.detail().text;
    }
  });
}

inline error link::caught(const outgoing_call& c, call_progress ran) const noexcept {
  const error why = engine::caught(me_, ran);
  return describe(why.with([ran](error_detail& d) { d.ran = ran; }), c);
}

/// Of what is not sent, as nobody would wait for its reply.
[[nodiscard]] inline error too_late() noexcept {
  return {errc::timed_out, "the deadline had passed before it was sent", call_progress::not_sent};
}

/// Worker's thread, which waits for the reply before it does anything else. `later`: other threads
/// took the room that was found.
inline link::sending link::send_request(outgoing_call& c, message&& m, time_point now, error& why) {
  frame_header h = header_of(c);
  h.call = pending_.open(c.deadline());
  if (c.settings().given) given_.add(h.call, c.settings().given);
  h.deadline = deadline_field(c.deadline() - now);
  // It has waited for its turn.
  const bool turn_of_another = c.is_large() && bulk_turn_.exchange(true, std::memory_order_relaxed);
  const auto number = queue(std::move(m), h);
  if (c.is_large()) bulk_turn_.store(turn_of_another, std::memory_order_relaxed);
  const bool later = number && is_crowded_out(*number);
  if (later) c.is_large(*number == no_bulk_room);
  if (!later) me_.counts.calls.fetch_add(1, std::memory_order_relaxed);
  if (later || !number) {
    pending_.close(h.call);
    if (later) return sending::later;
    why = number.error();
    return sending::failed;
  }
  c.was_sent({h.call, *number});
  flush();
  return sending::sent;
}

inline link::sending link::send_body(outgoing_call& c, const request_body& body, time_point now,
                                     error& why) noexcept {
  if (c.deadline() <= now) {
    why = too_late();
    return sending::failed;
  }
  std::optional<message> m = written(body, why);
  if (!m) return sending::failed;
  const sending how = or_die([&] { return send_request(c, *std::move(m), now, why); });
  if (how == sending::sent) body.was_sent();
  return how;
}

/// As users' codecs write it, or why it cannot be.
inline std::optional<message> link::written(const request_body& body, error& why) const noexcept {
  try {
    std::optional<message> m(std::in_place, me_.settings().bounds);
    body.write(*m);
    return m;
  } catch (...) {
    why = unsent(engine::caught(me_));
    return std::nullopt;
  }
}

inline link::sending link::send_now(outgoing_call& c, const request_body& body,
                                    error& why) noexcept {
  const bool first = !c.has_begun();
  begin(c);
  if (!me_.on_thread() || !can_send_at_once()) return sending::later;
  return send_body(c, body, first ? c.begun() : me_.time().now(), why);
}

inline asio::awaitable<call_result> link::send_later(outgoing_call& c, const request_body& body) {
  const intrusive_ptr<link> self(this);
  begin(c);
  call_result r;
  try {
    if (!me_.on_thread()) co_return co_await call_from_elsewhere(c, body);
    for (tickets mine;;) {
      // In line first, so that who waits there holds no encoded message.
      const message_size what = c.is_large() ? message_size::large : message_size::any;
      if (what == message_size::large || !can_send_at_once()) {
        c.waits(true);
        if (auto ok = co_await find_room(c.deadline(), what, mine); !ok) {
          co_return call_result{nullptr, ok.error()};
        }
      }
      switch (send_body(c, body, me_.time().now(), r.failure)) {
      case sending::later:
        continue;
      case sending::failed:
        co_return r;
      case sending::sent:
        break;
      }
      // Since the room was found nothing was awaited, so this is not cancelled, and does wait.
      co_return co_await async_wait_for_reply(pending_, c.sent(), asio::deferred);
    }
  } catch (...) {  // as it was cancelled
    r.failure = caught_or_die(me_, call_progress::maybe_executed);
    if (c.sent().frame == sent_request::no_frame) r.failure = unsent(r.failure);
    c.waits(false);
  }
  co_return r;
}

/// A call awaited elsewhere: encoded there, sent on the worker's thread, where it inherits nothing.
inline asio::awaitable<call_result> link::call_from_elsewhere(outgoing_call& c,
                                                              const request_body& body) {
  try {
    for (tickets mine;;) {
      error why;
      std::optional<message> m = written(body, why);
      if (!m) {
        c.waits(false);
        co_return call_result{nullptr, why};
      }
      c.waits(true);
      future<result_or_tickets> there = start_on(me_.executor_in(make_intrusive<call_scope>()),
                                                 exchange_for_others(c, *std::move(m), mine));
      result_or_tickets came = co_await std::move(there).get();
      if (auto* result = std::get_if<call_result>(&came)) co_return std::move(*result);
      mine = std::get<tickets>(came);
    }
  } catch (...) {  // as it was cancelled
    c.waits(false);
    co_return call_result{nullptr, caught_or_die(me_, call_progress::maybe_executed)};
  }
}

/// On the worker's thread. Tickets: others took its room, and it may try again with them.
inline auto link::exchange_for_others(outgoing_call c, message m, tickets mine)
    -> asio::awaitable<result_or_tickets> {
  if (mine.what == message_size::large || !can_send_at_once()) {
    if (auto ok = co_await find_room(c.deadline(), mine.what, mine); !ok) {
      co_return call_result{nullptr, ok.error()};
    }
  }
  const time_point now = me_.time().now();
  if (c.deadline() <= now) co_return call_result{nullptr, too_late()};
  c.is_large(mine.what == message_size::large);
  error why;
  switch (or_die([&] { return send_request(c, std::move(m), now, why); })) {
  case sending::later:
    if (c.is_large()) mine.what = message_size::large;
    co_return mine;
  case sending::failed:
    co_return call_result{nullptr, std::move(why)};
  case sending::sent:
    break;
  }
  co_return co_await async_wait_for_reply(pending_, c.sent(), asio::deferred);
}

/// It has a deadline only if it was given one.
inline void link::post(outgoing_call& c, const request_body& body) {
  begin(c);
  require_can_send();
  error why;
  if (std::optional<message> m = written(body, why)) {
    frame_header h = header_of(c);
    h.flags |= flag_no_reply;
    if (c.settings().limit) h.deadline = deadline_field(*c.settings().limit);
    me_.counts.calls.fetch_add(1, std::memory_order_relaxed);
    const auto queued = queue(*std::move(m), h);
    if (queued && is_crowded_out(*queued)) {
      why = no_room_now(*this);
      if (*queued == no_bulk_room) bulk_refused_.store(true, std::memory_order_relaxed);
    }
    if (!queued) why = queued.error();
  }
  if (why) throw rpc_error(describe(why, c));
  flush();
}

}  // namespace weft::engine
