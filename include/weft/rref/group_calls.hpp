// SPDX-License-Identifier: BSL-1.0
// One function at several workers.
//
//   auto scores = co_await weft::call_all<&accuracy>(me.peers("eval"), weights);
//   auto loaded = co_await weft::broadcast<&load>(me.peers("actor"), weights, weft::as_expected);
//
//   broadcast to a…g:     caller ──► d ──► f ──► g         arguments, along a tree
//                            │       └───► e
//                            ├─────► b ──► c
//                            └─────► a
//                         caller ◄────── a…g               results, straight
#pragma once

#include <weft/core/future.hpp>
#include <weft/rpc/call_options.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/function.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/awaitable.hpp>

#include <type_traits>
#include <vector>

namespace weft {

namespace detail {
/// std::vector of R, or of expected<R> with `as_expected`; std::monostate for void.
template <class R, class... Args>
using group_return =
    std::vector<std::conditional_t<wants_expected<Args...>, expected<R>, stored<R>>>;
}  // namespace detail

/// Calls F at each of the peers with the same arguments, at once, as `peer::call` does. The results
/// are in the order of `peers`. The first error cancels the other calls, and is thrown once all
/// have ended; it names its peer. With `weft::as_expected`: each result or its error, and an error
/// cancels nothing. Options count for each call. Each call sends its arguments from here: for large
/// ones use `broadcast`.
template <auto F, class... Args>
[[nodiscard]] auto call_all(const std::vector<peer>& peers, Args&&... args)
    -> asio::awaitable<detail::group_return<typename function<F>::result, Args...>>;

/// The same for large arguments: they go along a binomial tree of the peers, in which each worker
/// sends them to at most log2(n) + 1 others, from the memory in which they came. Results go
/// straight to the caller. Order, errors and options are those of `call_all`, without `retry`.
///
/// F runs once at each peer, or fails there. If a worker dies, or cannot receive the arguments, the
/// one before it in the tree sends them to those behind it, so that its own result is the only one
/// that is lost. A worker runs F once it has passed the arguments on. As with `post`, autograd does
/// not record the arguments, and tensors that require grad arrive detached; results are recorded
/// as those of calls. All peers are of one worker, which has rref's services. F takes no reference
/// in place of a value. May be awaited anywhere.
template <auto F, class... Args>
[[nodiscard]] auto broadcast(const std::vector<peer>& peers, Args&&... args)
    -> asio::awaitable<detail::group_return<typename function<F>::result, Args...>>;

}  // namespace weft

#include <weft/rref/impl/group_calls.hpp>
