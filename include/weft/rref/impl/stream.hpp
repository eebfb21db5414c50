// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rref/stream.hpp.
#pragma once

#include <weft/core/call_scope.hpp>
#include <weft/core/detail/as_error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/process_workers.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rref/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace weft {

namespace detail {

/// Sets an event when its time comes, on the worker's thread.
class wakes_at {
 public:
  wakes_at(worker& me, time_point when, intrusive_ptr<event> who)
      : timer_(me.time().make_timer(context_of(me))) {
    timer_->arm(when, [this, whom = std::move(who)] {
      late_ = true;
      whom->set();
    });
  }
  [[nodiscard]] bool late() const noexcept { return late_; }

 private:
  std::unique_ptr<timer> timer_;
  bool late_ = false;
};

[[nodiscard]] inline time_point stream_deadline(worker& me, const std::optional<within>& limit) {
  call_settings s;
  if (limit) s.set(*limit);
  return s.deadline_from(me.time().now(), me.settings().call_deadline);
}
/// What `open` runs: cancelled when its last end is gone. At its caller; what serves it has none.
struct opened_call final : ref_counted {
  future<void> work;
  std::string peer;
  std::string_view function;
  bool only_reads = false;  // the function has no sink, so its last writer hears what it ends with
  std::size_t writers = 0;  // that have not finished
};

/// Where the opened function is not known.
inline constexpr std::string_view name_of_write = "weft::sink::write";

/// Of that call, if it is known.
[[nodiscard]] inline error of_call(const error& e, const intrusive_ptr<opened_call>& call) {
  if (!call) return e;
  return e.with([&](error_detail& d) {
    if (d.peer.empty()) d.peer = call->peer;
    if (d.function.empty() || d.function == name_of_write) d.function = std::string(call->function);
  });
}

/// Until the event is set. Throws timed_out with these words, or cancelled.
inline asio::awaitable<void> wait_for_stream(worker& me, intrusive_ptr<event> what,
                                             time_point until, const char* in_vain,
                                             intrusive_ptr<opened_call> of) {
  if (what->is_set()) co_return;
  const wakes_at alarm(me, until, what);
  try {
    co_await event::wait(what);
  } catch (const std::system_error&) {
    throw rpc_error(of_call(error(errc::cancelled, "waiting for a stream was cancelled"), of));
  }
  if (alarm.late()) throw rpc_error(of_call(error(errc::timed_out, in_vain), of));
}

/// On the worker's thread.
template <class T>
struct stream_writer final : ref_counted {
  explicit stream_writer(rref<port<T>> reader) : to(std::move(reader)), me(&to.owner().self()) {}

  const rref<port<T>> to;
  worker* const me;
  stream_credit credit;
  error failure;
  std::optional<error> returned;  // of the call that opened it; no error: the function has returned
  bool over = false;              // finished, or dropped
  bool finishing = false, end_told = false;
  intrusive_ptr<event> changed = make_intrusive<event>();
  future<void> asks;
  bool asking = false;

  void fail(const error& why) {
    if (!failure) failure = why;
    changed->set();
  }
  void ask() {
    if (asking) return;
    asking = true;
    asks = start_on(me->executor_in(nullptr), asked(intrusive_ptr<stream_writer>(this)));
  }
  static asio::awaitable<void> asked(intrusive_ptr<stream_writer> self) {
    const auto count = co_await self->to.template call<&port<T>::taken>(
        self->credit.to_ask_for(), within(no_limit), as_expected);
    self->asking = false;
    if (!count) {
      self->fail(of_stream(count.error()));
    } else if (!self->credit.taken(*count)) {
      self->fail(error(errc::protocol_error, "more items were taken than were written"));
    }
    self->changed->set();
  }

  static asio::awaitable<void> write(intrusive_ptr<stream_writer> self, T item,
                                     std::optional<within> limit, intrusive_ptr<opened_call> call) {
    require(self);
    std::optional<time_point> until;
    const auto deadline = [&] {
      if (!until) until = stream_deadline(*self->me, limit);
      return *until;
    };
    while (!self->failure && self->credit.full()) {
      if (self->changed->is_set()) self->changed = make_intrusive<event>();
      self->ask();
      co_await wait_for_stream(*self->me, self->changed, deadline(),
                               "the reader did not take enough items in time", call);
    }
    if (self->failure) throw rpc_error(of_call(self->failure, call));
    std::uint64_t bytes = 0;
    const stream_item<T> sent{std::move(item), self->credit.sent(), 0, &bytes};
    while (!self->posted(sent, call)) {
      co_await self->to.owner().room(within(deadline() - self->me->time().now()));
    }
    self->credit.sent(bytes);
    if (self->credit.is_worth_asking()) self->ask();
  }
  /// The last writer of a function that only reads hears what that ends with. Again behind a wait
  /// that ended at its limit.
  static asio::awaitable<void> finish(intrusive_ptr<stream_writer> self,
                                      std::optional<within> limit,
                                      intrusive_ptr<opened_call> call) {
    if (!self || !self->finishing) require(self);
    // Of one that has returned the reader's end says whether it took all items.
    const bool well = self->returned && !*self->returned;
    if (!self->finishing && self->failure && !well) throw rpc_error(of_call(self->failure, call));
    self->over = self->finishing = true;
    const auto until = stream_deadline(*self->me, limit);
    co_await tell_end(self, until, call);
    if (!std::exchange(self->end_told, true) && call) --call->writers;
    if (!call || !call->only_reads || call->writers > 0) co_return;
    while (!self->returned) {
      if (self->changed->is_set()) self->changed = make_intrusive<event>();
      co_await wait_for_stream(*self->me, self->changed, until,
                               "the function that reads did not return in time", call);
    }
    if (*self->returned) throw rpc_error(*self->returned);
    co_await tell_end(self, until, call);
  }
  /// Throws closed if the reader is gone, and has not taken all items.
  static asio::awaitable<void> tell_end(intrusive_ptr<stream_writer> self, time_point until,
                                        intrusive_ptr<opened_call> call) {
    const auto told = co_await self->to.template call<&port<T>::end>(
        true, self->credit.sent(), within(until - self->me->time().now()), as_expected);
    if (!told) throw rpc_error(of_call(of_stream(told.error()), call));
  }
  /// What is known of the object behind a stream, in words of the stream.
  [[nodiscard]] static error of_stream(const error& e) {
    const error thrown = as_thrown_there(e);
    const error out = thrown == errc::rref_owner_died
                          ? error(make_error_code(errc::peer_died), thrown.shared_detail())
                          : thrown;
    return out.with([](error_detail& d) {
      if (d.function.starts_with("weft::detail::port<")) d.function = std::string(name_of_write);
    });
  }
  static void require(const intrusive_ptr<stream_writer>& self) {
    if (!self) throw rpc_error(errc::invalid_argument, "an empty sink");
    if (self->over) throw rpc_error(errc::invalid_argument, "this sink has finished already");
  }
  [[nodiscard]] bool posted(const stream_item<T>& item,
                            const intrusive_ptr<opened_call>& call) const {
    try {
      to.template post<&port<T>::item>(item);
      return true;
    } catch (const rpc_error& e) {
      if (e.error() != errc::too_many_calls) throw rpc_error(of_call(of_stream(e.error()), call));
      return false;
    }
  }
  /// Its sink is gone.
  void drop() {
    asks = {};
    if ((std::exchange(over, true) && (!finishing || end_told)) || failure) return;
    // It may be dropped with a loop of the user's, when the worker is gone.
    if (!process_workers::any([this](worker& w) { return &w == me; })) return;
    start_on(me->executor_in(nullptr), dropped(to, credit.sent())).detach();
  }
  static asio::awaitable<void> dropped(rref<port<T>> to, std::uint64_t sent) {
    static_cast<void>(co_await to.template call<&port<T>::end>(false, sent, as_expected));
  }
};

/// Wherever a stream's reader is compiled in, its writer can call these.
template <class T>
void expose_stream() noexcept {
  weft::expose<&port<T>::item>();
  weft::expose<&port<T>::end>();
  weft::expose<&port<T>::taken>();
  weft::expose<constructor<port<T>>>();
}

struct stream_access {
  // At the worker that calls.
  template <class T>
  static std::pair<sink<T>, std::pair<stream<T>, intrusive_ptr<port_queue<T>>>>
  sink_for(const peer& of, const intrusive_ptr<opened_call>& call) {
    expose_stream<T>();  // what the writer calls here
    auto queue = make_intrusive<port_queue<T>>(true);
    sink<T> there;
    there.to_ = of.self().share(port<T>(queue));
    stream<T> here;
    here.queue_ = queue;
    here.me_ = &of.self();
    here.call_ = call;
    return std::pair(std::move(there), std::pair(std::move(here), std::move(queue)));
  }
  template <class T>
  static std::pair<stream<T>, std::pair<sink<T>, intrusive_ptr<stream_writer<T>>>>
  stream_for(const peer& of, const intrusive_ptr<opened_call>& call) {
    auto to = of.make<port<T>>();
    stream<T> there;
    there.from_ = to;
    auto writer = make_intrusive<stream_writer<T>>(std::move(to));
    sink<T> here;
    here.writer_ = writer;
    here.call_ = call;
    return std::pair(std::move(there), std::pair(std::move(here), std::move(writer)));
  }
};

template <class T>
inline constexpr bool is_sink = false;
template <class T>
inline constexpr bool is_sink<sink<T>> = true;
template <class T>
inline constexpr bool is_stream = false;
template <class T>
inline constexpr bool is_stream<stream<T>> = true;

/// What the other end of a parameter is told when the call has ended.
template <class T>
void tell_call_ended(const intrusive_ptr<port_queue<T>>& reader, const error& how) {
  reader->change([&](stream_progress& p) { p.call_ended(how); });
}
template <class T>
void tell_call_ended(const intrusive_ptr<stream_writer<T>>& writer, const error& how) {
  writer->returned = how;
  writer->fail(how ? how : error(errc::closed, "the function that reads has returned"));
}

template <class Tuple>
struct stream_parameters;
template <class... P>
struct stream_parameters<std::tuple<P...>> {
  template <class T>
  static constexpr bool is_end = is_sink<T> || is_stream<T>;
  static constexpr std::size_t ends = (std::size_t{is_end<std::remove_cvref_t<P>>} + ... + 0);
  static constexpr std::size_t sinks = (std::size_t{is_sink<std::remove_cvref_t<P>>} + ... + 0);
  static constexpr std::size_t others = sizeof...(P) - ends;
  /// How many others stand before parameter I.
  template <std::size_t I>
  static constexpr std::size_t others_before() {
    constexpr bool end[] = {is_end<std::remove_cvref_t<P>>..., false};
    std::size_t n = 0;
    for (std::size_t i = 0; i < I; ++i) n += end[i] ? 0 : 1;
    return n;
  }
};

template <class T>
asio::awaitable<T> at_once(T value) {
  co_return value;
}

/// Runs the call, and tells the ends that stay how it ended.
template <auto F, class Target, class Arguments, class... States>
asio::awaitable<void> run_opened(Target target, Arguments arguments, States... states) {
  auto call = std::apply(
      [&](auto&&... a) {
        return target.template call<F>(std::forward<decltype(a)>(a)..., as_expected);
      },
      std::move(arguments));
  const auto result = co_await std::move(call);
  const error how = result ? error() : result.error();
  (tell_call_ended(states, how), ...);
}

/// `target`: a peer, or a reference to an object there.
template <auto F, class Target, class... Args>
auto open_on(const peer& there, Target target, Args&&... args) {
  using parameters = typename function<F>::parameters;
  using shape = stream_parameters<parameters>;
  static_assert(std::is_void_v<typename function<F>::result>,
                "weft: a function with streams returns void: what it has to say it writes.");
  static_assert(shape::ends > 0,
                "weft: open is for functions with a weft::sink or weft::stream among their "
                "parameters; use call for others.");
  constexpr std::size_t options = trailing_options<Args...>();
  static_assert(sizeof...(Args) - options == shape::others,
                "weft: open takes the function's arguments without its sinks and streams, in "
                "order, and options behind them.");
  static_assert(!wants_expected<Args...> && !wants_retry<Args...>,
                "weft: open takes no as_expected and no retry: errors appear at the ends.");
  auto opened = make_intrusive<opened_call>();
  opened->peer = there.name();
  opened->function = function<F>::name();
  opened->only_reads = shape::sinks == 0;
  opened->writers = shape::ends - shape::sinks;
  auto given = std::forward_as_tuple(std::forward<Args>(args)...);

  // Each parameter: its argument, and of a stream the end that stays and its state.
  const auto one = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
    using P = std::remove_cvref_t<std::tuple_element_t<I, parameters>>;
    constexpr std::size_t at = shape::template others_before<I>();
    if constexpr (is_sink<P>) {
      return stream_access::sink_for<typename P::value_type>(there, opened);
    } else if constexpr (is_stream<P>) {
      return stream_access::stream_for<typename P::value_type>(there, opened);
    } else {
      using type = std::tuple_element_t<at, std::tuple<Args&&...>>;
      return std::pair<std::decay_t<type>, std::monostate>(std::forward<type>(std::get<at>(given)),
                                                           std::monostate());
    }
  };
  auto all = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::make_tuple(one(std::integral_constant<std::size_t, I>())...);
  }(std::make_index_sequence<std::tuple_size_v<parameters>>());
  const auto limits = [&]<std::size_t... I>(std::index_sequence<I...>) {
    if constexpr (sizeof...(I) == 0) {
      return std::tuple(within(no_limit));
    } else {
      return std::tuple(std::get<shape::others + I>(given)...);
    }
  }(std::make_index_sequence<options>());

  const auto part_of = [](auto& p, auto get) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(p.second)>, std::monostate>) {
      return std::tuple<>();
    } else {
      return std::tuple(std::move(get(p.second)));
    }
  };
  const auto end = [](auto& stays) -> auto& { return stays.first; };
  const auto state = [](auto& stays) -> auto& { return stays.second; };
  opened->work = std::apply(
      [&](auto&... p) {
        return std::apply(
            [&](auto&&... states) {
              return there.self().spawn(run_opened<F>(
                  std::move(target), std::tuple_cat(std::tuple(std::move(p.first))..., limits),
                  std::move(states)...));
            },
            std::tuple_cat(part_of(p, state)...));
      },
      all);
  return at_once(std::apply([&](auto&... p) { return std::tuple_cat(part_of(p, end)...); }, all));
}

}  // namespace detail

template <auto F, class... Args>
auto peer::open(Args&&... args) const {
  return detail::open_on<F>(*this, *this, std::forward<Args>(args)...);
}
template <class T>
template <auto M, class... Args>
auto rref<T>::open(Args&&... args) const {
  return detail::open_on<M>(owner(), *this, std::forward<Args>(args)...);
}

template <class T>
asio::awaitable<void> sink<T>::write(T item, std::optional<within> limit) {
  return detail::stream_writer<T>::write(writer_.state, std::move(item), limit, call_);
}
template <class T>
asio::awaitable<void> sink<T>::finish(std::optional<within> limit) {
  return detail::stream_writer<T>::finish(writer_.state, limit, call_);
}

template <class T>
void sink<T>::set_window(std::uint64_t items, std::uint64_t bytes) {
  if (writer_.state) writer_.state->credit.limit_to(items, bytes);
}

namespace detail {
template <class T>
asio::awaitable<std::optional<T>> next_of(worker* me, intrusive_ptr<port_queue<T>> queue,
                                          std::optional<within> limit,
                                          intrusive_ptr<opened_call> call) {
  if (!queue) throw rpc_error(errc::invalid_argument, "an empty stream");
  std::optional<time_point> until;
  for (;;) {
    bool over = false;
    intrusive_ptr<event> news;
    if (auto item = queue->take(over, news)) co_return item;
    if (over) co_return std::nullopt;
    if (!until) until = stream_deadline(*me, limit);
    co_await wait_for_stream(*me, std::move(news), *until, "no item came in time", call);
  }
}
}  // namespace detail

template <class T>
asio::awaitable<std::optional<T>> stream<T>::next(std::optional<within> limit) {
  return detail::next_of(me_, queue_.state, limit, call_);
}

template <class T>
struct codec<sink<T>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = codec<rref<detail::port<T>>>::min_size;
  static void encode(writer& w, const sink<T>& s) {
    if (!s.to_) throw rpc_error(errc::not_encodable, "only open sends a weft::sink");
    codec<rref<detail::port<T>>>::encode(w, s.to_);
  }
  static sink<T> decode(reader& r) {
    auto to = codec<rref<detail::port<T>>>::decode(r);
    if (!to) r.fail("a sink without a reader");
    sink<T> out;
    out.writer_ = make_intrusive<detail::stream_writer<T>>(std::move(to));
    return out;
  }
};
template <class T>
struct structure<sink<T>> {
  static constexpr std::string_view tag = "weft::sink 1";
  using parts = std::tuple<T>;
};

template <class T>
struct codec<stream<T>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = codec<rref<detail::port<T>>>::min_size;
  static void encode(writer& w, const stream<T>& s) {
    if (!s.from_) throw rpc_error(errc::not_encodable, "only open sends a weft::stream");
    codec<rref<detail::port<T>>>::encode(w, s.from_);
  }
  static stream<T> decode(reader& r) {
    detail::expose_stream<T>();  // what the writer calls here
    const auto from = codec<rref<detail::port<T>>>::decode(r);
    if (!from || !from.is_owner()) r.fail("a stream that is not at its reader");
    stream<T> out;
    out.queue_ = from.local()->queue();
    out.me_ = &from.owner().self();
    return out;
  }
};
template <class T>
struct structure<stream<T>> {
  static constexpr std::string_view tag = "weft::stream 1";
  using parts = std::tuple<T>;
};

}  // namespace weft
