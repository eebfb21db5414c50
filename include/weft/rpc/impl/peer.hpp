// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/peer.hpp: the caller's half of a call. All that does not depend on the
// function's types stands behind the virtual members of `link`.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/rpc/detail/call_check.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/called.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/outgoing_call.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rpc/reply.hpp>
#include <weft/wire/codec.hpp>

#include <asio/associated_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/deferred.hpp>
#include <asio/io_context.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

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
    throw rpc_error(errc::unknown_peer,
                    "there is no rank " + std::to_string(rank) + "; the world has " +
                        std::to_string(world_size()) +
                        (world_size() == 1 ? " worker" : " workers") +
                        (members_.why_so_many.empty() ? "" : ", " + members_.why_so_many));
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

inline const id128& peer::incarnation() const noexcept {
  return me_->members().members[rank_].incarnation;
}

namespace detail {

// ── what a call writes ──

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
  template <class Given>
  static auto how_often(const Given& given) {
    return retry_of(given, std::make_index_sequence<sizeof...(Args) - count>());
  }
};

/// `Prepare(message&)` lets rref put its target into the message's record.
struct prepare_nothing {
  void operator()(message&) const noexcept {}
};

/// Arguments that were converted, as they are written. Refers to both, which outlive it.
template <class Parameters, class Prepare>
class arguments_body final : public request_body {
 public:
  arguments_body(const Parameters& arguments, const Prepare& prepare) noexcept
      : arguments_(arguments), prepare_(prepare) {}
  void write(message& m) const override {
    prepare_(m);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (codec<std::tuple_element_t<I, Parameters>>::encode(m.payload(), std::get<I>(arguments_)),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<Parameters>>());
  }

 private:
  const Parameters& arguments_;
  const Prepare& prepare_;
};

/// Arguments of a call that does not wait: converted when they are written, so that what throws
/// then is an error of the call.
template <class Parameters, class Split, class Given, class Prepare>
class given_body final : public request_body {
 public:
  given_body(Given&& given, const Prepare& prepare) noexcept
      : given_(std::move(given)), prepare_(prepare) {}
  void write(message& m) const override {
    const Parameters arguments = Split::arguments(std::move(given_));
    arguments_body<Parameters, Prepare>(arguments, prepare_).write(m);
  }

 private:
  mutable Given given_;  // references; written once
  const Prepare& prepare_;
};

// ── what a caller gets ──

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
    return tl::unexpected(c.to().caught(c, call_progress::executed));
  }
}

/// What an error of a call is to its user.
struct blame_callee {
  static const error& error_of(const error& e) noexcept { return e; }
};

template <class R, class Blame>
expected<R> take_answer(call_result&& r, const outgoing_call& c) {
  if (r.reply) {
    expected<R> result = decode_reply<R>(*r.reply, c);
    if (result) return result;
    return tl::unexpected(Blame::error_of(result.error()));
  }
  return tl::unexpected(Blame::error_of(c.to().describe(r.failure, c)));
}

/// R, expected<R>, or an exception.
template <class R, class Delivered, class Blame>
Delivered deliver_answer(call_result&& r, const outgoing_call& c) {
  constexpr bool as_value = !std::is_same_v<Delivered, R>;
  expected<R> result = take_answer<R, Blame>(std::move(r), c);
  if constexpr (as_value) {
    return result;
  } else {
    if (!result) throw rpc_error(result.error());
    if constexpr (!std::is_void_v<R>) return std::move(*result);
  }
}

/// Of a call that this code makes. Throws rpc_error.
template <class Fn>
const function_entry& entry_of(const link& to) {
  to.self().require_its_functions();
  if constexpr (requires { typename Fn::original; }) {
    return registered<typename Fn::original>.entry;
  } else {
    return registered<Fn>.entry;
  }
}

// ── a call that is awaited: one coroutine, unless it waits for room or is awaited elsewhere ──

template <class Fn, class Delivered, class Blame, class Prepare>
asio::awaitable<Delivered> call_and_wait(outgoing_call c, typename Fn::arguments arguments,
                                         Prepare prepare) {
  const arguments_body<typename Fn::arguments, Prepare> body(arguments, prepare);
  call_result r;
  try {
    switch (c.to().send_now(c, body, r.failure)) {
    case link::sending::sent:
      r = co_await async_wait_for_reply(c.to().replies(), c.sent(), asio::deferred);
      break;
    case link::sending::later:
      r = co_await c.to().send_later(c, body);
      break;
    case link::sending::failed:
      break;
    }
  } catch (...) {  // as it was cancelled
    r.failure = c.to().caught(c, call_progress::maybe_executed);
  }
  co_return deliver_answer<typename Fn::result, Delivered, Blame>(std::move(r), c);
}

/// The same with `retry`, in weft/rpc/retry.hpp. The arguments are written for each attempt.
template <class Fn, class Delivered, class Blame, class Prepare>
asio::awaitable<Delivered> call_and_repeat(outgoing_call c, retry how,
                                           typename Fn::arguments arguments, Prepare prepare);

/// The same with `into`, in weft/rpc/into.hpp: the result goes to the memory that was given.
template <class Fn, class Delivered>
asio::awaitable<Delivered> call_into(link& to, intrusive_ptr<given_memory> given,
                                     asio::awaitable<Delivered> call);
/// Throws rpc_error: invalid_argument, if it is the memory of one of these arguments.
template <class R, class Given>
void require_given_apart(const given_memory& memory, const Given& arguments);

/// The call of Fn as an awaitable that holds its converted arguments.
template <class Fn, class Blame = blame_callee, class Prepare, class... Args>
auto make_call(link& to, Prepare prepare, Args&&... args)
    -> asio::awaitable<call_return<typename Fn::result, Args...>> {
  using split = split_call<typename Fn::arguments, Args...>;
  using delivered = call_return<typename Fn::result, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  outgoing_call c(to, entry_of<Fn>(to), split::options(given));
  const intrusive_ptr<given_memory> memory = c.settings().given;
  if constexpr (wants_into<Args...>) require_given_apart<typename Fn::result>(*memory, given);
  // NOLINTBEGIN(bugprone-use-after-move): the options are behind the arguments
  auto call = [&] {
    if constexpr (wants_retry<Args...>) {
      return call_and_repeat<Fn, delivered, Blame>(std::move(c), split::how_often(given),
                                                   split::arguments(std::move(given)),
                                                   std::move(prepare));
    } else {
      return call_and_wait<Fn, delivered, Blame>(std::move(c), split::arguments(std::move(given)),
                                                 std::move(prepare));
    }
  }();
  // NOLINTEND(bugprone-use-after-move)
  if constexpr (wants_into<Args...>) {
    return call_into<Fn>(to, memory, std::move(call));
  } else {
    return call;
  }
}

// ── calls whose caller goes on: no coroutine, as nothing is awaited before they are sent ──

/// Hears the answer to one request, on its worker's thread, in the scope of the call.
template <class Heard>
struct answer_handler {
  using executor_type = scope_executor<asio::io_context::executor_type>;
  using cancellation_slot_type = asio::cancellation_slot;

  executor_type executor;
  asio::cancellation_slot stop;
  outgoing_call call;
  Heard heard;  // (call_result, const outgoing_call&)

  [[nodiscard]] executor_type get_executor() const noexcept { return executor; }
  [[nodiscard]] asio::cancellation_slot get_cancellation_slot() const noexcept { return stop; }
  void operator()(call_result r) {
    if (stop.is_connected()) stop.clear();
    heard(std::move(r), call);
  }
};

/// Sends it if that takes no wait; `heard` has the answer, or why there is none. False: it would
/// wait, and `heard` was not called.
template <class Heard>
bool send_then(outgoing_call& c, const request_body& body, asio::cancellation_slot stop,
               Heard heard) {
  error why;
  switch (c.to().send_now(c, body, why)) {
  case link::sending::later:
    return false;
  case link::sending::failed:
    heard(call_result{nullptr, std::move(why)}, c);
    return true;
  case link::sending::sent:
    wait_for_reply(
        c.to().replies(), c.sent(),
        answer_handler<Heard>{
            {context_of(c.to().self()).get_executor(), this_scope()}, stop, c, std::move(heard)});
    return true;
  }
  return false;
}

/// Ends a future with its answer.
template <class R, class Blame>
struct kept_promise {
  promise<R> future;

  void operator()(call_result r, const outgoing_call& c) {
    try {
      expected<R> result = take_answer<R, Blame>(std::move(r), c);
      if (!result) throw rpc_error(std::move(result).error());
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

template <class Fn, class Blame = blame_callee, class Prepare, class... Args>
auto start_call(link& to, Prepare prepare, Args&&... args) -> future<typename Fn::result> {
  static_assert(!wants_into<Args...>,
                "weft: start and post take no into; await call(..., into(t))");
  using R = typename Fn::result;
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  outgoing_call c(to, entry_of<Fn>(to), split::options(given));
  // NOLINTNEXTLINE(bugprone-use-after-move): the options are behind the arguments
  typename Fn::arguments arguments = split::arguments(std::move(given));
  to.require_can_send();
  asio::any_io_executor executor = to.self().get_executor();
  if constexpr (wants_retry<Args...>) {
    return start_on(std::move(executor),
                    call_and_repeat<Fn, R, Blame>(std::move(c), split::how_often(given),
                                                  std::move(arguments), std::move(prepare)));
  }
  if (to.self().on_thread()) {
    auto state = make_intrusive<future_state<R>>(executor);
    const arguments_body<typename Fn::arguments, Prepare> body(arguments, prepare);
    if (send_then(c, body, state->stop.slot(), kept_promise<R, Blame>{promise<R>(state)})) {
      return future<R>(std::move(state));
    }
  }
  return start_on(std::move(executor), call_and_wait<Fn, R, Blame>(
                                           std::move(c), std::move(arguments), std::move(prepare)));
}

/// Queues a request that has no reply. It has a deadline only if it was given one: nobody waits.
template <class Fn, class Prepare, class... Args>
void post_call(link& to, Prepare prepare, Args&&... args) {
  static_assert(!wants_into<Args...>,
                "weft: start and post take no into; await call(..., into(t))");
  using split = split_call<typename Fn::arguments, Args...>;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  outgoing_call c(to, entry_of<Fn>(to), split::options(given));
  to.post(c, given_body<typename Fn::arguments, split, decltype(given), Prepare>(std::move(given),
                                                                                 prepare));
}

}  // namespace detail

template <class... Options>
asio::awaitable<void> peer::room(const Options&... options) const {
  static_assert((std::is_same_v<Options, within> && ...),
                "weft: room takes no option but weft::within(...)");
  detail::call_settings settings;
  (settings.set(options), ...);
  return link().wait_writable(settings.limit);
}

template <auto F, class... Args>
auto peer::call(Args&&... args) const
    -> asio::awaitable<detail::call_return<typename function<F>::result, Args...>> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(detail::check_result<F>());
  return detail::make_call<detail::called<detail::exposed<F>, Args...>>(
      link(), detail::prepare_nothing{}, std::forward<Args>(args)...);
}

template <auto F, class... Args>
auto peer::start(Args&&... args) const -> future<typename function<F>::result> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(detail::check_result<F>());
  static_assert(!detail::wants_expected<Args...>,
                "weft: start takes no as_expected; await the future and catch rpc_error");
  return detail::start_call<detail::called<detail::exposed<F>, Args...>>(
      link(), detail::prepare_nothing{}, std::forward<Args>(args)...);
}

template <auto F, class... Args>
void peer::post(Args&&... args) const {
  static_assert(detail::check_call<F, Args...>());
  static_assert(!detail::wants_retry<Args...>,
                "weft: post does not take retry, because no reply says whether it failed; use "
                "call or start");
  detail::post_call<detail::called<detail::exposed<F>, Args...>>(link(), detail::prepare_nothing{},
                                                                 std::forward<Args>(args)...);
}

}  // namespace weft
