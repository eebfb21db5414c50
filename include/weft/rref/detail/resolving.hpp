// SPDX-License-Identifier: BSL-1.0
// Calls whose arguments are references: the callee gets the values from where they are.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/gather.hpp>
#include <weft/rpc/detail/called.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/retry.hpp>
#include <weft/rref/detail/adapted.hpp>
#include <weft/rref/impl/rref.hpp>
#include <weft/wire/codec.hpp>

#include <asio/awaitable.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft {
namespace detail {

template <class T>
inline constexpr bool stands_for<rref<T>, T> = true;

/// A value, or a reference to one that is elsewhere or not yet made.
template <class T>
struct given_argument {
  using either = std::variant<T, rref<T>>;
  either held;

  /// From what converts to T, or an rref<T>, which must not be empty.
  template <class Given>
    requires(!std::same_as<std::remove_cvref_t<Given>, given_argument>)
  explicit given_argument(Given&& given) : held(holds(std::forward<Given>(given))) {}

 private:
  template <class Given>
  static either holds(Given&& given) {
    if constexpr (std::same_as<std::remove_cvref_t<Given>, either>) {
      return std::forward<Given>(given);
    } else if constexpr (stands_for<std::remove_cvref_t<Given>, T>) {
      if (!given) refuse_empty();
      return either(std::in_place_index<1>, std::forward<Given>(given));
    } else {
      return either(std::in_place_index<0>, std::forward<Given>(given));
    }
  }
};

/// `position` counts from 1, among the arguments that travel.
template <class T>
asio::awaitable<T> value_of(given_argument<T> given, std::size_t position) {
  if (given.held.index() == 0) co_return std::get<0>(std::move(given.held));
  const rref<T> from = std::get<1>(std::move(given.held));
  error why;
  try {
    co_return co_await from.to_here();
  } catch (const rpc_error& e) {
    why = e.error();
  }
  throw rpc_error(why.with([&](error_detail& d) {
    d.ran = call_progress::not_executed;
    d.cause_code = why.code();
    d.cause = why.shared_detail();
    d.function.clear();
    d.peer.clear();
    d.text = "argument " + std::to_string(position) + ", a reference to an object of '" +
             from.owner().name() + "', could not be fetched";
  }));
}

/// With the deadline, the scope and so the gradients of the request. What fails here has not run.
template <class Arguments>
struct resolved_arguments;
template <class... A>
struct resolved_arguments<std::tuple<A...>> {
  using given = std::tuple<given_argument<A>...>;
  static asio::awaitable<std::tuple<A...>> get(given all) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return gather(value_of<A>(std::get<I>(std::move(all)), I + 1)...);
    }(std::index_sequence_for<A...>());
  }
};

template <class Fn>
struct resolving : adapted<Fn, resolving<Fn>> {
  static std::string suffix() { return " with references"; }

  using values = resolved_arguments<typename Fn::arguments>;
  using arguments = typename values::given;
  static asio::awaitable<typename Fn::result> call(invocation& c, arguments&& given) {
    c.reached = invocation::stage::arguments;
    co_return co_await run_in_its_place<Fn>(c, co_await values::get(std::move(given)));
  }
};

template <class Fn>
inline constexpr repeats repeats_of<resolving<Fn>> = repeats_of<Fn>;

}  // namespace detail

template <class T>
struct codec<detail::given_argument<T>> {
  using either = codec<typename detail::given_argument<T>::either>;
  static constexpr std::size_t min_size = either::min_size;
  static void encode(writer& w, const detail::given_argument<T>& value) {
    either::encode(w, value.held);
  }
  static detail::given_argument<T> decode(reader& r) {
    auto held = either::decode(r);
    if (held.index() == 1 && !std::get<1>(held)) r.fail("an empty reference in place of a value");
    return detail::given_argument<T>(std::move(held));
  }
};

}  // namespace weft
