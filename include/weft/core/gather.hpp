// SPDX-License-Identifier: BSL-1.0
// Several results at once: all of them, each as it comes, or the first few.
#pragma once

#include <weft/core/detail/gathered.hpp>
#include <weft/core/error.hpp>
#include <weft/core/future.hpp>
#include <weft/core/intrusive_ptr.hpp>

#include <asio/awaitable.hpp>

#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace weft {

namespace detail {
class arrivals;
}  // namespace detail

/// Work for `gather` and `first`: a future, or a call or other coroutine, which they start.
template <class Work>
concept startable = detail::is_started<Work>;

/// All results, in the order of the arguments; std::monostate for void. The first error cancels the
/// others. Once all have ended, it is thrown, as by `with_task_group`. Cancelling cancels all. (The
/// work behind a future is asked to end, and not awaited.) On an executor that one thread runs.
///
///   auto [a, b] = co_await weft::gather(p.call<&f>(1), q.call<&g>("two"));
template <startable... Work>
[[nodiscard]] auto gather(Work&&... work)
    -> asio::awaitable<std::tuple<detail::stored<detail::result_of<Work>>...>>;
/// The same for any number of one kind.
///
///   std::vector<asio::awaitable<int>> calls;
///   for (weft::peer p : me.peers("actor")) calls.push_back(p.call<&rollout>(step));
///   std::vector<int> lengths = co_await weft::gather(std::move(calls));
template <startable Work>
[[nodiscard]] auto gather(std::vector<Work>&& work)
    -> asio::awaitable<std::vector<detail::stored<detail::result_of<Work>>>>;
/// Each result or its error, when all have ended; an error cancels nothing. Exceptions that are no
/// rpc_error become remote_exception, resource_exhausted or cancelled, with their text.
template <startable Work>
[[nodiscard]] auto gather(std::vector<Work>&& work, as_expected_t)
    -> asio::awaitable<std::vector<expected<detail::result_of<Work>>>>;
/// The same for several kinds: a std::tuple of `expected`.
///
///   auto [a, b] = co_await weft::gather(p.call<&f>(1), q.call<&g>("two"), weft::as_expected);
template <class... Work>
  requires detail::work_as_expected<Work...>
[[nodiscard]] auto gather(Work&&... work);
/// A mistake that a static_assert explains: work that is not moved.
template <class... Work>
  requires(detail::is_kept_work<Work> || ...)
auto gather(Work&&... work);

/// One of several results, and its index.
template <class T>
struct completion {
  std::size_t index;  ///< in the vector that was given
  expected<T> result;
};

/// Results of futures in the order in which they come. Its destructor cancels the rest. One
/// coroutine at a time, always on one executor.
///
///   auto arriving = weft::as_completed(std::move(futures));
///   while (auto one = co_await arriving.next()) use(one->index, *one->result);
template <class T>
class completions {
 public:
  explicit completions(std::vector<future<T>> futures);
  completions(completions&&) noexcept = default;
  completions& operator=(completions&&) noexcept = default;

  /// Waits for the next result; std::nullopt after the last. Errors are values, as those of
  /// `gather(..., as_expected)`; an empty future gives invalid_argument. Cancelling the wait does
  /// not cancel the futures.
  [[nodiscard]] asio::awaitable<std::optional<completion<T>>> next();
  /// The number of results that `next` has not given yet.
  [[nodiscard]] std::size_t remaining() const noexcept { return futures_.size() - given_; }

 private:
  std::vector<future<T>> futures_;
  intrusive_ptr<detail::arrivals> arrived_;
  std::size_t given_ = 0;
};
template <class T>
[[nodiscard]] completions<T> as_completed(std::vector<future<T>>&& futures) {
  return completions<T>(std::move(futures));
}
template <class T>
auto as_completed(const std::vector<future<T>>& futures);  // a mistake: not moved

/// The first `k` results that succeed, in the order in which they come; the others are cancelled.
/// If there are fewer than `k`, throws rpc_error invalid_argument. Once too many have failed,
/// throws the first error as rpc_error, with the texts of the next ones.
///
///   auto fastest = co_await weft::first(8, std::move(gradients));  // of ten, say
template <class T>
[[nodiscard]] asio::awaitable<std::vector<completion<T>>> first(std::size_t k,
                                                                std::vector<future<T>>&& futures);
/// The same for calls and other coroutines, which it starts.
template <class T>
[[nodiscard]] asio::awaitable<std::vector<completion<T>>>
first(std::size_t k, std::vector<asio::awaitable<T>>&& work);
template <startable Work>
auto first(std::size_t k, const std::vector<Work>& work);  // a mistake: not moved

}  // namespace weft

#include <weft/core/impl/gather.hpp>
