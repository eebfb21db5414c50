// SPDX-License-Identifier: BSL-1.0
// How a call is repeated: its attempts, and the pauses between them. When, decides
// rpc/detail/retry_course.hpp.
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

template <class Fn>
inline constexpr repeats repeats_of = repeats::what_did_not_run;
template <auto F>
inline constexpr repeats repeats_of<exposed<F>> =
    idempotent<F> || idempotent<pointer_of<F>> ? repeats::anything : repeats::what_did_not_run;

/// Makes the call until there is a reply, or no other attempt. `c` is the whole of it, each attempt
/// a copy. What is thrown on the way ends it.
asio::awaitable<call_result> repeat(outgoing_call& c, const request_body& body, retry how,
                                    repeats what);

/// The last one counts, as of the other options.
template <class Tuple, std::size_t... I>
retry retry_of(const Tuple& args, std::index_sequence<I...>) {
  retry out;
  const auto take = [&out]<class Option>(const Option& option) {
    if constexpr (std::is_same_v<Option, retry>) out = option;
  };
  constexpr std::size_t first = std::tuple_size_v<Tuple> - sizeof...(I);
  (take(std::get<first + I>(args)), ...);
  return out;
}

template <class Fn, class Delivered, class Blame, class Prepare>
asio::awaitable<Delivered> call_and_repeat(outgoing_call c, retry how,
                                           typename Fn::arguments arguments, Prepare prepare) {
  const arguments_body<typename Fn::arguments, Prepare> body(arguments, prepare);
  call_result r;
  try {
    r = co_await repeat(c, body, how, repeats_of<Fn>);
  } catch (...) {  // as it was cancelled
    r.failure = c.to().caught(c, call_progress::not_sent);
  }
  co_return deliver_answer<typename Fn::result, Delivered, Blame>(std::move(r), c);
}

}  // namespace weft::detail
