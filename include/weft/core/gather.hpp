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

/// What `gather` and its like take: futures, and calls or other coroutines, which they start.
template <class Work>
concept startable = detail::is_started<Work>;

/// All results, in the order of the arguments; std::monostate for void. The first error cancels the
/// others, and is thrown once all have ended, as by `with_task_group`. Cancelling cancels all. (The
/// work behind a future is asked to end, and not waited for.) On a thread's own executor.
///
///   auto [a, b] = co_await weft::gather(p.call<&f>(1), q.call<&g>("two"));
template <startable... Work>
[[nodiscard]] auto gather(Work&&... work)
    -> asio::awaitable<std::tuple<detail::stored<detail::result_of<Work>>...>>;
/// The same of any number of one kind.
///
///   std::vector<asio::awaitable<int>> calls;
///   for (weft::peer p : me.peers("actor")) calls.push_back(p.call<&rollout>(step));
///   std::vector<int> lengths = co_await weft::gather(std::move(calls));
template <startable Work>
[[nodiscard]] auto gather(std::vector<Work>&& work)
    -> asio::awaitable<std::vector<detail::stored<detail::result_of<Work>>>>;
/// Each result or its error, when all have ended: none cancels the others. What is thrown that is
/// no rpc_error becomes an error with its words: remote_exception, resource_exhausted, cancelled.
template <startable Work>
[[nodiscard]] auto gather(std::vector<Work>&& work, as_expected_t)
    -> asio::awaitable<std::vector<expected<detail::result_of<Work>>>>;
/// The same of several kinds: a std::tuple of `expected`.
///
///   auto [a, b] = co_await weft::gather(p.call<&f>(1), q.call<&g>("two"), weft::as_expected);
template <class... Work>
  requires detail::work_as_expected<Work...>
[[nodiscard]] auto gather(Work&&... work);
/// A slip, for which there is a sentence: work that is not moved.
template <class... Work>
  requires(detail::is_kept_work<Work> || ...)
auto gather(Work&&... work);

/// One of several results, and which it is.
template <class T>
struct completion {
  std::size_t index;  ///< in the vector that was given
  expected<T> result;
};

/// Results of futures in the order in which they come. What is left of them when this goes is
/// cancelled. One coroutine at a time, always on one executor.
///
///   auto arriving = weft::as_completed(std::move(futures));
///   while (auto one = co_await arriving.next()) use(one->index, *one->result);
template <class T>
class completions {
 public:
  explicit completions(std::vector<future<T>> futures);
  completions(completions&&) noexcept = default;
  completions& operator=(completions&&) noexcept = default;

  /// The next one, as soon as it is there; nothing after the last. Errors as values, as those of
  /// `gather(..., as_expected)`; an empty future's is invalid_argument. Cancelling leaves the
  /// futures alone.
  [[nodiscard]] asio::awaitable<std::optional<completion<T>>> next();
  /// How many it has not given yet.
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
auto as_completed(const std::vector<future<T>>& futures);  // a slip

/// The first `k` that succeed, in the order in which they come; the others are cancelled. Throws
/// rpc_error: what failed first, once too many have failed, with the words of the next ones;
/// invalid_argument if there are fewer than `k`.
///
///   auto fastest = co_await weft::first(8, std::move(gradients));  // of ten, say
template <class T>
[[nodiscard]] asio::awaitable<std::vector<completion<T>>> first(std::size_t k,
                                                                std::vector<future<T>>&& futures);
/// The same of calls and other coroutines, which it starts.
template <class T>
[[nodiscard]] asio::awaitable<std::vector<completion<T>>>
first(std::size_t k, std::vector<asio::awaitable<T>>&& work);
template <startable Work>
auto first(std::size_t k, const std::vector<Work>& work);  // a slip

}  // namespace weft

#include <weft/core/impl/gather.hpp>
