// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rref/group_calls.hpp.
#pragma once

#include <weft/config.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/detail/as_error.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/core/gather.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/caller.hpp>
#include <weft/rpc/detail/call_check.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rref/detail/adapted.hpp>
#include <weft/rref/detail/broadcasts.hpp>
#include <weft/rref/group_calls.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/pass_on.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/this_coro.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft {

namespace detail {

/// A worker that gets a broadcast, and which one of its caller's.
struct broadcast_stop {
  std::uint32_t rank = 0;
  std::uint64_t number = 0;
  friend bool operator==(const broadcast_stop&, const broadcast_stop&) = default;
};
using broadcast_stops = std::vector<broadcast_stop>;

/// Arguments that several messages are written from.
template <class Arguments>
struct shared_arguments {
  std::shared_ptr<Arguments> held;
};

/// Fn, whose arguments come by another way.
template <class Fn>
struct broadcasting : adapted<Fn, broadcasting<Fn>> {
  static std::string suffix() { return " of a broadcast"; }

  /// Its number, and `broadcast_numbers::first_open`.
  using arguments = std::tuple<std::uint64_t, std::uint64_t>;
  static asio::awaitable<typename Fn::result> call(invocation& c, arguments&& given) {
    c.reached = invocation::stage::arguments;
    return run(c, std::get<0>(given), std::get<1>(given));
  }

 private:
  static asio::awaitable<typename Fn::result> run(invocation& c, std::uint64_t number,
                                                  std::uint64_t first_open) {
    std::shared_ptr<void> came;
    {
      const broadcasts::claim claim(c.who.self().template use<broadcasts>(), c.who.rank(), number,
                                    first_open);
      co_await event::wait(claim.slot->ready);
      if (claim.slot->type != type_key<typename Fn::arguments>) {
        throw rpc_error(errc::bad_arguments, "a broadcast brought arguments of another function",
                        call_progress::not_executed);
      }
      came = std::move(claim.slot->arguments);
    }
    co_return co_await run_in_its_place<Fn>(
        c, std::move(*static_cast<typename Fn::arguments*>(came.get())));
  }
};

template <class Fn>
asio::awaitable<broadcast_stops> spread(worker& me, std::uint32_t caller, broadcast_stops to,
                                        shared_arguments<typename Fn::arguments> arguments);

/// Brings Fn's arguments to a worker, the first of the stops, and from there to the others. Gives
/// those that it could not reach.
template <class Fn>
struct carrying : adapted<Fn, carrying<Fn>> {
  static std::string suffix() { return " to many"; }

  using result = broadcast_stops;
  using values = shared_arguments<typename Fn::arguments>;
  using arguments = std::tuple<std::uint32_t, broadcast_stops, values>;
  static asio::awaitable<result> call(invocation& c, arguments&& given) {
    c.reached = invocation::stage::arguments;
    return run(c, std::move(given));
  }

 private:
  static asio::awaitable<result> run(invocation& c, arguments given) {
    worker& me = c.who.self();
    auto& [caller, stops, args] = given;
    const auto exists = [&me](std::uint32_t rank) { return rank < me.world_size(); };
    const std::size_t most = std::size_t{16} * me.world_size();  // a caller may name one twice
    if (!exists(caller) || stops.empty() || stops.size() > most ||
        stops.front().rank != me.rank() ||
        !std::ranges::all_of(stops, exists, &broadcast_stop::rank)) {
      throw rpc_error(errc::bad_arguments, "a broadcast to workers that are not there",
                      call_progress::not_executed);
    }
    struct passed_on {
      intrusive_ptr<broadcast_slot> slot;
      ~passed_on() {
        if (slot) slot->ready->set();
      }
    } const at_end{me.template use<broadcasts>().offer(
        caller, stops.front().number, c.deadline, args.held, type_key<typename Fn::arguments>)};
    stops.erase(stops.begin());
    co_return co_await spread<Fn>(me, caller, std::move(stops), std::move(args));
  }
};

/// One branch of the tree: its first worker that can be reached brings them to the others.
template <class Fn>
asio::awaitable<broadcast_stops> branch(worker& me, std::uint32_t caller, broadcast_stops to,
                                        shared_arguments<typename Fn::arguments> arguments) {
  broadcast_stops unreached;
  while (!to.empty()) {
    const auto behind = co_await make_call<carrying<Fn>>(
        me.link_to(to.front().rank), prepare_nothing{}, caller, to, arguments, within(no_limit),
        as_expected);  // within that of the scope
    if (behind) {
      unreached.insert(unreached.end(), behind->begin(), behind->end());
      break;
    }
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) throw rpc_error(behind.error());
    unreached.push_back(to.front());
    to.erase(to.begin());
  }
  co_return unreached;
}

template <class Fn>
asio::awaitable<broadcast_stops> spread(worker& me, std::uint32_t caller, broadcast_stops to,
                                        shared_arguments<typename Fn::arguments> arguments) {
  std::vector<asio::awaitable<broadcast_stops>> branches;
  while (!to.empty()) {  // the larger half first
    const auto half = static_cast<std::ptrdiff_t>(to.size() / 2);
    branches.push_back(branch<Fn>(me, caller, {to.begin() + half, to.end()}, arguments));
    to.resize(static_cast<std::size_t>(half));
  }
  broadcast_stops unreached;
  for (const broadcast_stops& some : co_await gather(std::move(branches))) {
    unreached.insert(unreached.end(), some.begin(), some.end());
  }
  co_return unreached;
}

/// A broadcast at its caller. Worker's thread.
template <class R>
struct broadcast_course final : ref_counted {
  broadcast_stops stops;
  std::vector<error> unreached;                         // of each, if it is
  std::vector<intrusive_ptr<future_state<R>>> to_stop;  // of each: its call

  void fail(std::size_t i, const error& why) {
    if (to_stop[i]->is_set()) return;
    unreached[i] = why;
    const future<R> last(to_stop[i]);  // a dropped future stops its work
  }
};

/// The call of a broadcast was given up, and may not have come there: its arguments need not wait.
WEFT_PROCESS_WIDE inline asio::awaitable<void> forget_broadcast(const caller& who,
                                                                std::uint64_t number) {
  who.self().use<broadcasts>().from(who.rank()).over(number);
  co_return;
}
inline void forget_there(worker& me, const broadcast_stop& of) {
  try {
    peer(me, of.rank).post<&forget_broadcast>(of.number);
  } catch (const rpc_error&) {  // it is lost, or so busy that they wait until their deadline
  }
}

/// The call of one peer.
template <class Fn, class... Options>
asio::awaitable<typename Fn::result>
ask_one(worker& me, intrusive_ptr<broadcast_course<typename Fn::result>> course, std::size_t i,
        Options... options) {
  const broadcast_stop to = course->stops[i];
  broadcast_numbers& numbers = me.use<broadcasts>().to(to.rank);
  struct open {
    broadcast_numbers& all;
    std::uint64_t number;
    ~open() { all.close(number); }
  } const until_its_end{numbers, to.number};
  auto result =
      co_await make_call<broadcasting<Fn>>(me.link_to(to.rank), prepare_nothing{}, to.number,
                                           numbers.first_open(), options..., as_expected);
  if (!result) {
    if (result.error().ran() != call_progress::executed) forget_there(me, to);
    throw rpc_error(course->unreached[i] ? course->unreached[i] : result.error());
  }
  if constexpr (!std::is_void_v<typename Fn::result>) co_return std::move(*result);
}

/// Brings the arguments to all; tries those itself that others could not reach.
template <class Fn>
asio::awaitable<void> bring_to_all(worker& me,
                                   intrusive_ptr<broadcast_course<typename Fn::result>> course,
                                   shared_arguments<typename Fn::arguments> arguments) {
  error broken;
  try {
    const auto unreached = co_await spread<Fn>(me, me.rank(), course->stops, arguments);
    for (std::size_t i = 0; i < course->stops.size(); ++i) {
      const broadcast_stop& stop = course->stops[i];
      if (std::ranges::find(unreached, stop) == unreached.end()) continue;
      if (course->to_stop[i]->is_set()) continue;
      const auto behind = co_await make_call<carrying<Fn>>(
          me.link_to(stop.rank), prepare_nothing{}, me.rank(), broadcast_stops{stop}, arguments,
          within(no_limit), as_expected);
      if (!behind) course->fail(i, behind.error());
    }
  } catch (...) {
    broken = as_error(std::current_exception());
  }
  if (!broken) co_return;
  for (std::size_t i = 0; i < course->stops.size(); ++i) course->fail(i, broken);
}

template <auto F, class Out>
asio::awaitable<Out> broadcast_from(worker& me, std::vector<std::uint32_t> ranks,
                                    shared_arguments<typename function<F>::arguments> arguments,
                                    within limit) {
  using Fn = exposed<F>;
  using R = typename Fn::result;
  const auto course = make_intrusive<broadcast_course<R>>();
  auto& all = me.use<broadcasts>();
  for (const std::uint32_t rank : ranks) course->stops.push_back({rank, all.to(rank).open()});
  course->unreached.resize(ranks.size());
  std::vector<future<R>> calls;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    calls.push_back(me.spawn(ask_one<Fn>(me, course, i, limit)));
    course->to_stop.push_back(future_access::state(calls.back()));
  }
  call_settings settings;
  settings.set(limit);
  auto scope = make_intrusive<call_scope>();  // nothing of it is recorded
  const time_point until = settings.deadline_from(me.time().now(), limit.limit);
  if (until != time_point::max()) scope->deadline = until;
  const future<void> arguments_go =
      start_on(me.executor_in(scope), bring_to_all<Fn>(me, course, std::move(arguments)));
  if constexpr (std::is_same_v<Out, std::vector<expected<R>>>) {
    co_return co_await gather(std::move(calls), as_expected);
  } else {
    co_return co_await gather(std::move(calls));
  }
}

/// On any executor.
template <auto F, class Out>
asio::awaitable<Out> broadcast_on(worker& me, std::vector<std::uint32_t> ranks,
                                  shared_arguments<typename function<F>::arguments> arguments,
                                  within limit) {
  co_return co_await start_on(
      me.get_executor(), broadcast_from<F, Out>(me, std::move(ranks), std::move(arguments), limit))
      .get();
}

template <class T>
asio::awaitable<T> none() {
  co_return T();
}

}  // namespace detail

template <auto F, class... Args>
auto call_all(const std::vector<peer>& peers, Args&&... args)
    -> asio::awaitable<detail::group_return<typename function<F>::result, Args...>> {
  static_assert(detail::check_call<F, Args...>());
  std::vector<asio::awaitable<detail::call_return<typename function<F>::result, Args...>>> calls;
  calls.reserve(peers.size());
  for (const peer& p : peers) calls.push_back(p.template call<F>(std::as_const(args)...));
  return gather(std::move(calls));
}

template <auto F, class... Args>
auto broadcast(const std::vector<peer>& peers, Args&&... args)
    -> asio::awaitable<detail::group_return<typename function<F>::result, Args...>> {
  static_assert(detail::check_call<F, Args...>());
  static_assert(detail::check_result<F>());
  static_assert(!detail::wants_retry<Args...>,
                "weft: broadcast takes no retry: it sends the arguments again itself where a "
                "worker is lost");
  using out = detail::group_return<typename function<F>::result, Args...>;
  using arguments = typename function<F>::arguments;
  using split = detail::split_call<arguments, Args...>;
  if (peers.empty()) return detail::none<out>();
  worker& me = peers.front().self();
  std::vector<std::uint32_t> ranks;
  for (const peer& p : peers) {
    if (&p.self() != &me) {
      throw rpc_error(errc::invalid_argument,
                      "the peers of a broadcast belong to several workers of this process");
    }
    ranks.push_back(p.rank());
  }
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);
  const detail::call_settings settings = split::options(given);
  // NOLINTBEGIN(bugprone-use-after-move): the options are behind the arguments
  detail::shared_arguments<arguments> values{
      std::make_shared<arguments>(split::arguments(std::move(given)))};
  // NOLINTEND(bugprone-use-after-move)
  return detail::broadcast_on<F, out>(me, std::move(ranks), std::move(values),
                                      within(settings.limit.value_or(me.settings().call_deadline)));
}

template <class Arguments>
struct codec<detail::shared_arguments<Arguments>>;
template <class... A>
struct codec<detail::shared_arguments<std::tuple<A...>>> {
  static constexpr std::size_t min_size = (std::size_t{codec<A>::min_size} + ... + 0);
  static void encode(writer& w, const detail::shared_arguments<std::tuple<A...>>& value) {
    std::apply([&w](const A&... a) { (codec<A>::encode(w, a), ...); }, *value.held);
  }
  static detail::shared_arguments<std::tuple<A...>> decode(reader& r) {
    if (detail::detach_received) detail::detach_received(r);
    return {std::make_shared<std::tuple<A...>>(std::tuple<A...>{codec<A>::decode(r)...})};
  }
};

}  // namespace weft
