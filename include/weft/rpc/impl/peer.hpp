// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/peer.hpp: the caller's half of a call.
#pragma once

#include <weft/rpc/detail/caught.hpp>
#include <weft/rpc/detail/refuse_crowd.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/cancellation_signal.hpp>
#include <asio/deferred.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <optional>

namespace weft {

inline peer worker::peer(std::string_view name) {
  const auto rank = members_.find(name);
  if (!rank) throw rpc_error(rank.error());
  return weft::peer(*this, *rank);
}
template <std::integral Rank>
peer worker::peer(Rank rank) {
  const auto number = static_cast<std::int64_t>(rank);
  if (number < 0 || number >= std::int64_t{world_size()}) {
    throw rpc_error(errc::unknown_peer, "there is no rank " + std::to_string(rank) +
                                            "; the world has " + std::to_string(world_size()) +
                                            (world_size() == 1 ? " worker" : " workers"));
  }
  return weft::peer(*this, static_cast<std::uint32_t>(rank));
}
inline std::vector<peer> worker::peers(std::string_view role) {
  std::vector<weft::peer> out;
  for (std::uint32_t r = 0; r < world_size(); ++r) {
    if (members_.members[r].role == role) out.push_back(peer(r));
  }
  return out;
}

namespace detail {

/// When a request is written: with its batch of handlers, at once, or soon, for its caller goes on.
enum class urgency : std::uint8_t { turn, early, soon };

/// Whether anything depends on when the reply comes.
enum class reply_is : std::uint8_t { awaited, unhurried };

/// A call ready to be encoded: who, what, until when, and what a service needs to know of it.
struct outgoing_call {
  ref<link> to;
  std::uint64_t function = 0;
  std::uint32_t signature = 0;
  std::string_view name;
  call_settings settings;
  urgency how = urgency::turn;
  reply_is reply = reply_is::awaited;
};

/// What a caller can tell of its call besides what went wrong.
struct call_story {
  link* to;
  std::string_view function;
  time_point begun;
  time_point deadline;  // its own or the default, never later than the scope's
  bool waited = false;  // for room, or for its answer
};

inline call_story begin_story(const outgoing_call& c) {
  worker& me = c.to->self();
  const time_point now = me.time().now();
  time_point deadline = later(now, c.settings.limit.value_or(me.settings().call_deadline));
  if (current_scope && current_scope->deadline) {
    deadline = std::min(deadline, *current_scope->deadline);
  }
  return {c.to.get(), c.name, now, deadline, false};
}

inline frame_header header_of(const outgoing_call& c) {
  frame_header h;
  h.kind = frame_kind::request;
  h.function = c.function;
  h.signature = c.signature;
  if (c.reply == reply_is::unhurried) h.flags |= flag_unhurried;
  if (current_scope) {
    h.trace = current_scope->trace;
    h.span = current_scope->span;
  }
  return h;
}

/// Adds to an error what the caller knows.
inline error describe(const error& e, const call_story& s) noexcept {
  return with_if_possible(e, [&](error_detail& d) {
    using std::chrono::microseconds;
    const worker& me = s.to->self();
    if (d.peer.empty()) d.peer = s.to->name();
    d.incarnation = me.members().members[s.to->rank()].incarnation.low;
    if (d.function.empty()) d.function = std::string(s.function);
    d.deadline = std::chrono::duration_cast<microseconds>(s.deadline - s.begun);
    d.elapsed = std::chrono::duration_cast<microseconds>(me.time().now() - s.begun);
    // A call that waited for its link says what the link waits for.
    if (s.waited && e.ran() == execution::not_sent && e == errc::timed_out) {
      if (const error why = s.to->reason()) d.text += "; " + why.detail().text;
    }
  });
}

/// Without waiting, and without passing by who waits in line.
[[nodiscard]] inline bool finds_room(link& to) noexcept { return !to.crowded() && to.roomy(); }

struct sent_request {
  std::uint64_t call = 0;
  std::uint64_t frame = link::no_room;
  /// Other threads took the room that it had found: it was not sent, and may try again.
  [[nodiscard]] bool sent_back() const noexcept { return frame == link::no_room; }
};

/// Of what is not sent, as nobody would wait for its reply.
inline error too_late() noexcept {
  return sure_error(errc::timed_out, "the deadline had passed before it was sent",
                    execution::not_sent);
}

/// Sends `m`. Whoever wants the reply waits for it before this thread, the worker's, does anything
/// else. Throws if there is no memory for the slot.
inline expected<sent_request> send_request(const outgoing_call& c, message&& m, time_point now,
                                           time_point deadline) {
  link& to = *c.to;
  frame_header h = header_of(c);
  h.call = to.slots().open(deadline);
  h.deadline = deadline_field(deadline - now);
  to.self().calls.fetch_add(1, std::memory_order_relaxed);
  const auto number = to.queue(std::move(m), h);
  if (!number || *number == link::no_room) {
    to.slots().close(h.call);
    if (number) return sent_request();
    return tl::unexpected(number.error());
  }
  switch (c.how) {
  case urgency::turn:
    to.flush();
    break;
  case urgency::early:
    to.flush_early();
    break;
  case urgency::soon:
    to.flush_with_turn();
    break;
  }
  return sent_request{h.call, *number};
}
template <class Fill>
expected<sent_request> send_request(const outgoing_call& c, const Fill& fill, time_point now,
                                    time_point deadline) {
  if (deadline <= now) return tl::unexpected(too_late());
  message m(c.to->self().settings().bounds);
  fill(m);
  return send_request(c, std::move(m), now, deadline);
}

/// A call awaited elsewhere, on the worker's thread, where it inherits nothing. None: sent back.
inline asio::awaitable<std::optional<call_result>> exchange_for_others(outgoing_call c, message m,
                                                                       time_point deadline) {
  link& to = *c.to;
  if (!finds_room(to)) {
    if (auto ok = co_await to.room(deadline); !ok) co_return call_result{nullptr, ok.error()};
  }
  const time_point now = to.self().time().now();
  if (deadline <= now) co_return call_result{nullptr, too_late()};
  const auto sent = send_request(c, std::move(m), now, deadline);
  if (!sent) co_return call_result{nullptr, sent.error()};
  if (sent->sent_back()) co_return std::nullopt;
  co_return co_await to.slots().async_wait(sent->call, sent->frame, asio::deferred);
}

/// Sends what `fill(message&)` writes, awaits the reply on any executor, and returns what
/// `take(call_result, const call_story&)` makes of it, or of what went wrong. A call's coroutine.
template <class Fill, class Take>
auto round_trip(outgoing_call c, Fill fill, Take take)
    -> asio::awaitable<std::invoke_result_t<Take, call_result, const call_story&>> {
  link& to = *c.to;
  worker& me = to.self();
  call_story story = begin_story(c);
  call_result r;
  bool sent_back = false;
  do {
    bool before = true;  // whatever is thrown on this thread is thrown before the request is sent
    try {
      sent_back = false;
      if (me.on_thread()) {
        // In line first, so that who waits there holds no encoded message.
        time_point now = story.waited ? me.time().now() : story.begun;
        if (!finds_room(to)) {
          story.waited = true;
          if (auto ok = co_await to.room(story.deadline); !ok) r.failure = ok.error();
          now = me.time().now();
        }
        if (!r.failure) {
          const auto sent = send_request(c, fill, now, story.deadline);
          // Since the room was found nothing was awaited, so this is not cancelled, and does wait.
          if (!sent) {
            r.failure = sent.error();
          } else if (sent->sent_back()) {
            sent_back = true;
          } else {
            story.waited = true;
            r = co_await to.slots().async_wait(sent->call, sent->frame, asio::deferred);
          }
        }
      } else {
        message m(me.settings().bounds);
        fill(m);
        before = false;
        story.waited = true;
        auto there = start_on(scoped(me.context(), make_ref<scope>()),
                              exchange_for_others(c, std::move(m), story.deadline));
        auto result = co_await std::move(there)(asio::use_awaitable);
        sent_back = !result;
        if (result) r = std::move(*result);
      }
    } catch (...) {
      const error why = caught(me, execution::maybe_executed);
      story.waited = false;
      r = {nullptr, before ? unsent(why) : why};
    }
  } while (sent_back);
  if (!r.reply) r.failure = describe(r.failure, story);
  co_return take(std::move(r), story);
}

/// What the reply holds, or why it cannot be read; the function ran in any case.
template <class R>
expected<R> decode_reply(incoming_message& reply, const call_story& story) {
  try {
    reader r = reply.payload();
    if constexpr (std::is_void_v<R>) {
      r.finish();
      return {};
    } else {
      expected<R> out(codec<R>::decode(r));
      r.finish();
      return out;
    }
  } catch (...) {
    const error why = caught(story.to->self(), execution::executed);
    return tl::unexpected(describe(
        with_if_possible(why, [](error_detail& d) { d.ran = execution::executed; }), story));
  }
}

template <class Parameters>
void encode_all(message& m, const Parameters& arguments) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (codec<std::tuple_element_t<I, Parameters>>::encode(m.payload(), std::get<I>(arguments)), ...);
  }(std::make_index_sequence<std::tuple_size_v<Parameters>>());
}

/// Converts the first arguments to F's parameter types; what is left are options.
template <class Parameters, class... Args>
struct split_call {
  static constexpr std::size_t count = sizeof...(Args) - trailing_options<Args...>();
  template <class Given>
  static Parameters arguments(Given&& given) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      // NOLINTBEGIN(bugprone-use-after-move): each element is taken once
      return Parameters(
          std::tuple_element_t<I, Parameters>(std::get<I>(std::forward<Given>(given)))...);
      // NOLINTEND(bugprone-use-after-move)
    }(std::make_index_sequence<count>());
  }
  template <class Given>
  static call_settings options(const Given& given) {
    return settings_of(given, std::make_index_sequence<sizeof...(Args) - count>());
  }
};

/// `Prepare(message&)` lets rref put its target into the message's record.
struct prepare_nothing {
  void operator()(message&) const noexcept {}
};

/// What a caller gets of an answer: R, expected<R>, or an exception.
template <class R, class Delivered>
struct answer_taker {
  Delivered operator()(call_result r, const call_story& story) const {
    constexpr bool as_value = !std::is_same_v<Delivered, R>;
    expected<R> result = r.reply ? decode_reply<R>(*r.reply, story)
                                 : expected<R>(tl::unexpected(std::move(r.failure)));
    if constexpr (as_value) {
      return result;
    } else {
      if (!result) throw rpc_error(result.error());
      if constexpr (!std::is_void_v<R>) return std::move(*result);
    }
  }
};

template <class Fn, class Delivered, class Prepare>
asio::awaitable<Delivered> run_call(outgoing_call c, typename Fn::arguments args, Prepare prepare) {
  auto fill = [args = std::move(args), prepare = std::move(prepare)](message& m) {
    prepare(m);
    encode_all(m, args);
  };
  return round_trip(std::move(c), std::move(fill), answer_taker<typename Fn::result, Delivered>());
}

template <class Fn>
const function_entry& entry_of() noexcept {
  if constexpr (requires { typename Fn::original; }) {
    return registered<typename Fn::original>.entry;
  } else {
    return registered<Fn>.entry;
  }
}

template <class Fn>
outgoing_call outgoing(ref<link> to, call_settings settings) {
  const function_entry& what = entry_of<Fn>();
  return {std::move(to), what.id, what.signature, what.name, settings};
}

/// The call of Fn as an awaitable that holds its converted arguments.
template <class Fn, class Prepare, class... Args>
auto make_call(link& to, Prepare prepare, Args&&... args)
    -> asio::awaitable<call_return<typename Fn::result, Args...>> {
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  // NOLINTBEGIN(bugprone-use-after-move): the options are behind the arguments
  outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  return run_call<Fn, call_return<typename Fn::result, Args...>>(
      std::move(c), split::arguments(std::move(given)), std::move(prepare));
  // NOLINTEND(bugprone-use-after-move)
}

// ── calls whose caller goes on: no coroutine, as nothing is awaited before they are sent ──

/// Hears the answer to one request, on its worker's thread, in the scope of the call.
template <class Heard>
struct answer_handler {
  using executor_type = scope_executor<asio::io_context::executor_type>;
  using cancellation_slot_type = asio::cancellation_slot;

  executor_type executor;
  asio::cancellation_slot stop;
  call_story story;
  Heard heard;  // (call_result, const call_story&)

  [[nodiscard]] executor_type get_executor() const noexcept { return executor; }
  [[nodiscard]] asio::cancellation_slot get_cancellation_slot() const noexcept { return stop; }
  void operator()(call_result r) {
    if (stop.is_connected()) stop.clear();
    if (!r.reply) r.failure = describe(r.failure, story);
    heard(std::move(r), story);
  }
};

/// Sends what `fill(message&)` writes; `heard` has the answer, or why there is none. Worker's
/// thread. False: sent back, and `heard` knows nothing.
template <class Fill, class Heard>
bool send_then(const outgoing_call& c, const Fill& fill, asio::cancellation_slot stop,
               Heard heard) {
  worker& me = c.to->self();
  call_story story = begin_story(c);
  error why;
  try {
    const auto sent = send_request(c, fill, story.begun, story.deadline);
    if (sent && sent->sent_back()) return false;
    if (sent) {
      story.waited = true;
      c.to->slots().async_wait(sent->call, sent->frame,
                               answer_handler<Heard>{{me.context().get_executor(), this_scope()},
                                                     stop,
                                                     std::move(story),
                                                     std::move(heard)});
      return true;
    }
    why = sent.error();
  } catch (...) {
    why = unsent(caught(me));
  }
  heard(call_result{nullptr, describe(why, story)}, story);
  return true;
}

/// Ends a future with its answer. `Blame` says what an error of the call is to its user.
template <class R, class Blame>
struct kept_promise {
  promise<R> future;

  void operator()(call_result r, const call_story& story) {
    try {
      if (!r.reply) throw rpc_error(Blame::error_of(r.failure));
      expected<R> result = decode_reply<R>(*r.reply, story);
      if (!result) throw rpc_error(Blame::error_of(result.error()));
      if constexpr (std::is_void_v<R>) {
        future->value.emplace();
      } else {
        future->value.emplace(std::move(*result));
      }
      future->end(nullptr);
    } catch (...) {
      future->end(std::current_exception());
    }
  }
};

struct blame_callee {
  static const error& error_of(const error& e) noexcept { return e; }
  template <class R>
  static asio::awaitable<R> of(asio::awaitable<R> call) {
    return call;
  }
};

template <class Fn, class Blame = blame_callee, class Prepare, class... Args>
auto start_call(link& to, Prepare prepare, Args&&... args) -> future<typename Fn::result> {
  using R = typename Fn::result;
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  c.how = urgency::early;
  // NOLINTNEXTLINE(bugprone-use-after-move): the options are behind the arguments
  typename Fn::arguments arguments = split::arguments(std::move(given));
  if (!finds_room(to)) refuse_crowd(to);
  worker& me = to.self();
  auto executor = scoped(me.context(), this_scope());
  if (me.on_thread()) {
    auto state = make_ref<future_state<R>>(executor);
    const auto fill = [&](message& m) {
      prepare(m);
      encode_all(m, arguments);
    };
    if (send_then(c, fill, state->stop.slot(), kept_promise<R, Blame>{promise<R>(state)})) {
      return future<R>(std::move(state));
    }
  }
  return start_on(std::move(executor), Blame::of(run_call<Fn, R>(std::move(c), std::move(arguments),
                                                                 std::move(prepare))));
}

/// Queues a request that has no reply. It has a deadline only if it was given one: nobody waits.
template <class Fn, class Prepare, class... Args>
void post_call(link& to, std::uint16_t flags, Prepare prepare, Args&&... args) {
  using split = split_call<typename Fn::arguments, Args...>;
  worker& me = to.self();
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  const outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  const call_story story = begin_story(c);
  if (!finds_room(to)) refuse_crowd(to);
  error why;
  try {
    message m(me.settings().bounds);
    prepare(m);
    const typename Fn::arguments arguments = split::arguments(std::move(given));
    encode_all(m, arguments);
    frame_header h = header_of(c);
    h.flags |= flags;
    if (c.settings.limit) h.deadline = deadline_field(*c.settings.limit);
    me.calls.fetch_add(1, std::memory_order_relaxed);
    const auto queued = to.queue(std::move(m), h);
    if (queued && *queued == link::no_room) refuse_crowd(to);
    if (!queued) why = queued.error();
  } catch (...) {
    why = unsent(caught(me));
  }
  if (why) throw rpc_error(describe(why, story));
  to.flush_early();
}

}  // namespace detail

template <auto F, class... Args>
auto peer::call(Args&&... args) const
    -> asio::awaitable<detail::call_return<typename function<F>::result, Args...>> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(detail::check_result<F>());
  return detail::make_call<detail::exposed<F>>(to(), detail::prepare_nothing{},
                                               std::forward<Args>(args)...);
}

template <auto F, class... Args>
auto peer::start(Args&&... args) const -> future<typename function<F>::result> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(detail::check_result<F>());
  static_assert(!detail::wants_expected<Args...>,
                "weft: start takes no as_expected; await the future and catch rpc_error");
  return detail::start_call<detail::exposed<F>>(to(), detail::prepare_nothing{},
                                                std::forward<Args>(args)...);
}

template <auto F, class... Args>
void peer::post(Args&&... args) const {
  static_assert(detail::check_call<F, Args...>());
  detail::post_call<detail::exposed<F>>(to(), flag_no_reply, detail::prepare_nothing{},
                                        std::forward<Args>(args)...);
}

}  // namespace weft
