// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/peer.hpp: the caller's half of a call.
#pragma once

#include <weft/rpc/peer.hpp>

#include <asio/deferred.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <new>

namespace weft {

inline peer worker::peer(std::string_view name) {
  const auto rank = members_.find(name);
  if (!rank) throw rpc_error(rank.error());
  return weft::peer(*this, *rank);
}
inline peer worker::peer(std::uint32_t rank) {
  if (rank >= world_size()) {
    throw rpc_error(errc::unknown_peer, "there is no rank " + std::to_string(rank) +
                                            "; the world has " + std::to_string(world_size()) +
                                            " workers");
  }
  return weft::peer(*this, rank);
}
inline peer worker::peer(int rank) {
  return peer(rank < 0 ? world_size() : static_cast<std::uint32_t>(rank));
}
inline std::vector<peer> worker::peers(std::string_view role) {
  std::vector<weft::peer> out;
  for (std::uint32_t r = 0; r < world_size(); ++r) {
    if (members_.members[r].role == role) out.push_back(peer(r));
  }
  return out;
}

namespace detail {

/// A call ready to be encoded: who, what, until when, and what a service needs to know of it.
struct outgoing_call {
  ref<link> to;
  std::uint64_t function = 0;
  std::uint32_t signature = 0;
  std::string_view name;
  call_settings settings;
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
  t.deadline = t.begun + c.settings.limit.value_or(me.settings().call_deadline);
  if (current_scope && current_scope->deadline) {
    t.deadline = std::min(t.deadline, *current_scope->deadline);
  }
  return t;
}

inline frame_header header_of(const outgoing_call& c, const timing& t) {
  using std::chrono::microseconds;
  frame_header h;
  h.kind = frame_kind::request;
  h.function = c.function;
  h.signature = c.signature;
  const auto left = std::chrono::duration_cast<microseconds>(t.deadline - t.begun).count();
  h.deadline_us = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left, 1, std::numeric_limits<std::uint32_t>::max()));
  if (current_scope) {
    h.trace = current_scope->trace;
    h.span = current_scope->span;
  }
  return h;
}

/// Adds to an error what the caller knows.
inline error describe(const error& e, const outgoing_call& c, const timing& t) {
  return e.with([&](error_detail& d) {
    using std::chrono::microseconds;
    if (d.peer.empty()) d.peer = c.to->name();
    d.incarnation = c.to->self().members().members[c.to->rank()].incarnation.low;
    if (d.function.empty()) d.function = std::string(c.name);
    d.deadline = std::chrono::duration_cast<microseconds>(t.deadline - t.begun);
    d.elapsed = std::chrono::duration_cast<microseconds>(c.to->self().time().now() - t.begun);
  });
}

/// Sends `m` and waits for the reply. The error is described. Both arguments outlive the await.
inline asio::awaitable<call_result> round_trip(const outgoing_call& c, message& m) {
  const timing t = time_of(c);
  if (c.to->full()) {
    if (auto ok = co_await c.to->room(t.deadline); !ok) {
      co_return call_result{nullptr, describe(ok.error(), c, t)};
    }
  }
  call_result r =
      co_await c.to->exchange(std::move(m), header_of(c, t), t.deadline, asio::deferred);
  if (!r.reply) r.failure = describe(r.failure, c, t);
  co_return r;
}

template <class R>
expected<R> decode_reply(incoming_message& reply) {
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
  } catch (const rpc_error& e) {
    return tl::unexpected(e.error().with([](error_detail& d) { d.ran = execution::executed; }));
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

/// What was met before a request was sent, whatever its thrower says of it.
[[nodiscard]] inline error unsent(const error& e) {
  return e.with([](error_detail& d) { d.ran = execution::not_sent; });
}
/// The exception in flight, met before a request was sent, as an error.
[[nodiscard]] inline error error_in_flight(const worker& me) {
  try {
    throw;
  } catch (const rpc_error& e) {
    return unsent(e.error());
  } catch (const std::bad_alloc& e) {
    return error(errc::resource_exhausted, e.what());
  } catch (const std::exception& e) {
    return error(errc::not_encodable, me.in_words(e));
  } catch (...) {
    return error(errc::not_encodable, "an exception that is not a std::exception");
  }
}

/// `Prepare(message&)` lets rref put its target into the message's record.
struct prepare_nothing {
  void operator()(message&) const noexcept {}
};

template <class Fn, class Delivered, class Arguments, class Prepare>
asio::awaitable<Delivered> run_call(outgoing_call c, Arguments args, Prepare prepare) {
  using R = typename Fn::result;
  constexpr bool as_value = !std::is_same_v<Delivered, R>;
  message m(c.to->self().settings().bounds);
  try {
    prepare(m);
    encode_arguments<Arguments>(m, args, std::make_index_sequence<std::tuple_size_v<Arguments>>());
  } catch (const rpc_error& e) {
    error described = describe(unsent(e.error()), c, time_of(c));
    if constexpr (as_value) {
      co_return tl::unexpected(std::move(described));
    } else {
      throw rpc_error(std::move(described));
    }
  } catch (...) {
    if constexpr (as_value) {
      co_return tl::unexpected(describe(error_in_flight(c.to->self()), c, time_of(c)));
    } else {
      throw;
    }
  }
  const call_result reply = co_await round_trip(c, m);
  if (!reply.reply) {
    if constexpr (as_value) {
      co_return tl::unexpected(reply.failure);
    } else {
      throw rpc_error(reply.failure);
    }
  }
  expected<R> result = decode_reply<R>(*reply.reply);
  if constexpr (as_value) {
    co_return result;
  } else {
    if (!result) throw rpc_error(describe(result.error(), c, time_of(c)));
    if constexpr (!std::is_void_v<R>) co_return std::move(*result);
  }
}

template <class Fn>
outgoing_call outgoing(ref<link> to, call_settings settings) {
  if constexpr (requires { typename Fn::original; }) {
    static_cast<void>(&registered<typename Fn::original>);
  } else {
    static_cast<void>(&registered<Fn>);
  }
  return {std::move(to), Fn::id, Fn::signature, Fn::name(), settings};
}

/// The call of Fn as an awaitable that holds its converted arguments.
template <class Fn, class Prepare, class... Args>
auto make_call(link& to, Prepare prepare, Args&&... args)
    -> asio::awaitable<call_return<typename Fn::result, Args...>> {
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  // NOLINTBEGIN(bugprone-use-after-move): the options are behind the arguments
  return run_call<Fn, call_return<typename Fn::result, Args...>>(
      outgoing<Fn>(ref<link>(&to), split::options(given)), split::arguments(std::move(given)),
      std::move(prepare));
  // NOLINTEND(bugprone-use-after-move)
}

template <class R, class Call>
future<R> start_call(link& to, Call call) {
  if (to.full()) {
    throw rpc_error(error(errc::too_many_calls, "the outbox is full").with([&](error_detail& d) {
      d.peer = to.name();
    }));
  }
  return start_on(scoped(to.self().context(), this_scope()), std::move(call));
}

/// Encodes and queues a request without waiting for a reply.
template <class Fn, class Prepare, class... Args>
void post_call(link& to, std::uint16_t flags, Prepare prepare, Args&&... args) {
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  const outgoing_call c = outgoing<Fn>(ref<link>(&to), split::options(given));
  const timing t = time_of(c);
  if (to.full()) {
    throw rpc_error(describe(error(errc::too_many_calls, "the outbox is full"), c, t));
  }
  message m(to.self().settings().bounds);
  try {
    prepare(m);
    const auto converted = split::arguments(std::move(given));
    encode_arguments<typename Fn::arguments>(
        m, converted, std::make_index_sequence<std::tuple_size_v<typename Fn::arguments>>());
  } catch (const rpc_error& e) {
    throw rpc_error(describe(e.error(), c, t));
  }
  frame_header h = header_of(c, t);
  h.flags |= flags;
  to.self().calls.fetch_add(1, std::memory_order_relaxed);
  if (auto sent = to.send(std::move(m), h); !sent) {
    throw rpc_error(describe(sent.error(), c, t));
  }
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
      to(), detail::make_call<detail::exposed<F>>(to(), detail::prepare_nothing{},
                                                  std::forward<Args>(args)...));
}

template <auto F, class... Args>
void peer::post(Args&&... args) const {
  static_assert(detail::check_call<F, Args...>());
  detail::post_call<detail::exposed<F>>(to(), flag_no_reply, detail::prepare_nothing{},
                                        std::forward<Args>(args)...);
}

}  // namespace weft
