// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/peer.hpp: the caller's half of a call.
#pragma once

#include <weft/rpc/detail/caught.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/deferred.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>

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
                                            " workers");
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

/// When a request is written: at the end of this batch of handlers, or early, for its caller goes
/// on computing: the first of a turn at once, or with those that follow it within a moment.
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

/// Room for one request, given back unless it is used.
class reservation {
 public:
  explicit reservation(link& to) noexcept : to_(to) {}
  reservation(const reservation&) = delete;
  reservation& operator=(const reservation&) = delete;
  ~reservation() {
    if (held_) to_.unreserve();
  }
  /// Without waiting, and without passing by who waits in line.
  [[nodiscard]] bool take() noexcept { return held_ = !to_.crowded() && to_.reserve(); }
  /// Waits in line. Worker's thread.
  [[nodiscard]] asio::awaitable<expected<void>> wait(time_point deadline) {
    auto ok = co_await to_.room(deadline);
    held_ = ok.has_value();
    co_return ok;
  }
  /// `queue` uses it up.
  void use() noexcept { held_ = false; }

 private:
  link& to_;
  bool held_ = false;
};

struct timing {
  time_point begun;
  time_point deadline;
};

/// Deadline of a call: its own or the default, never later than the scope's.
inline timing time_of(const outgoing_call& c) {
  worker& me = c.to->self();
  timing t;
  t.begun = me.time().now();
  t.deadline = later(t.begun, c.settings.limit.value_or(me.settings().call_deadline));
  if (current_scope && current_scope->deadline) {
    t.deadline = std::min(t.deadline, *current_scope->deadline);
  }
  return t;
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
inline error describe(const error& e, const outgoing_call& c, const timing& t) noexcept {
  return with_if_possible(e, [&](error_detail& d) {
    using std::chrono::microseconds;
    if (d.peer.empty()) d.peer = c.to->name();
    d.incarnation = c.to->self().members().members[c.to->rank()].incarnation.low;
    if (d.function.empty()) d.function = std::string(c.name);
    d.deadline = std::chrono::duration_cast<microseconds>(t.deadline - t.begun);
    d.elapsed = std::chrono::duration_cast<microseconds>(c.to->self().time().now() - t.begun);
    // A call that waited for its link says what the link waits for.
    if (e.ran() == execution::not_sent && e == errc::timed_out) {
      if (const error why = c.to->reason()) d.text += "; " + why.detail().text;
    }
  });
}

/// Sends `m` and waits for the reply. Worker's thread.
inline asio::awaitable<call_result> exchange(const outgoing_call& c, message& m, reservation& room,
                                             time_point deadline) {
  link& to = *c.to;
  worker& me = to.self();
  frame_header h = header_of(c);
  h.call = to.slots().open(deadline);
  h.deadline = deadline_field(deadline - me.time().now());
  me.calls.fetch_add(1, std::memory_order_relaxed);
  room.use();
  const auto number = to.queue(std::move(m), h);
  if (!number) {
    to.slots().close(h.call);
    co_return call_result{nullptr, number.error()};
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
  // Nothing was awaited since this coroutine began, so it is not cancelled, and does wait.
  co_return co_await to.slots().async_wait(h.call, *number, asio::deferred);
}

/// A call that is awaited elsewhere, on the worker's thread; it inherits nothing there.
inline asio::awaitable<call_result> exchange_for_others(outgoing_call c, message m,
                                                        time_point deadline) {
  reservation room(*c.to);
  if (!room.take()) {
    if (auto ok = co_await room.wait(deadline); !ok) co_return call_result{nullptr, ok.error()};
  }
  co_return co_await exchange(c, m, room, deadline);
}

/// Sends what `fill(message&)` writes and waits for the reply, on whatever executor this is
/// awaited. Whatever goes wrong is in the result, described.
template <class Fill>
asio::awaitable<call_result> round_trip(const outgoing_call& c, Fill fill) {
  const timing t = time_of(c);
  worker& me = c.to->self();
  call_result r;
  bool sent_back = false;
  bool before = true;  // whatever is thrown on this thread is thrown before the request is sent
  // Again only if other threads' posts took the room between its reservation and its use.
  do {
    try {
      r = {};
      before = true;
      if (me.on_thread()) {
        // In line first, so that who waits there holds no encoded message.
        reservation room(*c.to);
        if (!room.take()) {
          if (auto ok = co_await room.wait(t.deadline); !ok) r.failure = ok.error();
        }
        if (!r.failure) {
          message m(me.settings().bounds);
          fill(m);
          r = co_await exchange(c, m, room, t.deadline);
        }
      } else {
        message m(me.settings().bounds);
        fill(m);
        before = false;
        auto there = start_on(scoped(me.context(), make_ref<scope>()),
                              exchange_for_others(c, std::move(m), t.deadline));
        r = co_await std::move(there)(asio::use_awaitable);
      }
    } catch (...) {
      const error why = caught(me, execution::maybe_executed);
      r = {nullptr, before ? unsent(why) : why};
    }
    sent_back =
        !r.reply && r.failure == errc::too_many_calls && r.failure.ran() == execution::not_sent;
  } while (sent_back);
  if (!r.reply) r.failure = describe(r.failure, c, t);
  co_return r;
}

/// What the reply holds, or why it cannot be read; the function ran in any case.
template <class R>
expected<R> decode_reply(incoming_message& reply, const outgoing_call& c) {
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
    const error why = caught(c.to->self(), execution::executed);
    return tl::unexpected(
        describe(with_if_possible(why, [](error_detail& d) { d.ran = execution::executed; }), c,
                 time_of(c)));
  }
}

template <class Parameters, class Tuple, std::size_t... I>
void encode_arguments(message& m, const Tuple& args, std::index_sequence<I...>) {
  (codec<std::tuple_element_t<I, Parameters>>::encode(m.payload(), std::get<I>(args)), ...);
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

template <class Fn, class Delivered, class Arguments, class Prepare>
asio::awaitable<Delivered> run_call(outgoing_call c, Arguments args, Prepare prepare) {
  using R = typename Fn::result;
  constexpr bool as_value = !std::is_same_v<Delivered, R>;
  const call_result reply = co_await round_trip(c, [&](message& m) {
    prepare(m);
    encode_arguments<Arguments>(m, args, std::make_index_sequence<std::tuple_size_v<Arguments>>());
  });
  if (!reply.reply) {
    if constexpr (as_value) {
      co_return tl::unexpected(reply.failure);
    } else {
      throw rpc_error(reply.failure);
    }
  }
  expected<R> result = decode_reply<R>(*reply.reply, c);
  if constexpr (as_value) {
    co_return result;
  } else {
    if (!result) throw rpc_error(result.error());
    if constexpr (!std::is_void_v<R>) co_return std::move(*result);
  }
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

template <class Fn, class Prepare, class... Args>
auto make_call(urgency how, link& to, Prepare prepare, Args&&... args)
    -> asio::awaitable<call_return<typename Fn::result, Args...>> {
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  // NOLINTBEGIN(bugprone-use-after-move): the options are behind the arguments
  outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  c.how = how;
  return run_call<Fn, call_return<typename Fn::result, Args...>>(
      std::move(c), split::arguments(std::move(given)), std::move(prepare));
  // NOLINTEND(bugprone-use-after-move)
}
/// The call of Fn as an awaitable that holds its converted arguments.
template <class Fn, class Prepare, class... Args>
auto make_call(link& to, Prepare prepare, Args&&... args) {
  return make_call<Fn>(urgency::turn, to, std::move(prepare), std::forward<Args>(args)...);
}
/// The same for a caller that goes on computing.
template <class Fn, class Prepare, class... Args>
auto make_early_call(link& to, Prepare prepare, Args&&... args) {
  return make_call<Fn>(urgency::early, to, std::move(prepare), std::forward<Args>(args)...);
}

[[noreturn]] inline void refuse_crowd(const link& to) {
  throw rpc_error(error(errc::too_many_calls, "the outbox or the peer's window is full")
                      .with([&](error_detail& d) { d.peer = to.name(); }));
}

template <class R, class Call>
future<R> start_call(link& to, Call call) {
  {
    reservation room(to);  // the call takes its own, at once if this is the worker's thread
    if (!room.take()) refuse_crowd(to);
  }
  return start_on(scoped(to.self().context(), this_scope()), std::move(call));
}

/// Encodes and queues a request without waiting for a reply. It has a deadline only if it was given
/// one: it is nobody's who waits.
template <class Fn, class Prepare, class... Args>
void post_call(link& to, std::uint16_t flags, Prepare prepare, Args&&... args) {
  using split = split_call<typename Fn::arguments, Args...>;
  worker& me = to.self();
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  const outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  const timing t = time_of(c);
  reservation room(to);
  if (!room.take()) refuse_crowd(to);
  error why;
  try {
    message m(me.settings().bounds);
    prepare(m);
    const auto converted = split::arguments(std::move(given));
    encode_arguments<typename Fn::arguments>(
        m, converted, std::make_index_sequence<std::tuple_size_v<typename Fn::arguments>>());
    frame_header h = header_of(c);
    h.flags |= flags;
    if (c.settings.limit) h.deadline = deadline_field(*c.settings.limit);
    me.calls.fetch_add(1, std::memory_order_relaxed);
    room.use();
    if (auto queued = to.queue(std::move(m), h); !queued) why = queued.error();
  } catch (...) {
    why = unsent(caught(me));
  }
  if (why) throw rpc_error(describe(why, c, t));
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
  return detail::start_call<typename function<F>::result>(
      to(), detail::make_early_call<detail::exposed<F>>(to(), detail::prepare_nothing{},
                                                        std::forward<Args>(args)...));
}

template <auto F, class... Args>
void peer::post(Args&&... args) const {
  static_assert(detail::check_call<F, Args...>());
  detail::post_call<detail::exposed<F>>(to(), flag_no_reply, detail::prepare_nothing{},
                                        std::forward<Args>(args)...);
}

}  // namespace weft
