// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/gather.hpp.
#pragma once

#include <weft/core/detail/as_error.hpp>
#include <weft/core/detail/keep_result.hpp>
#include <weft/core/event.hpp>
#include <weft/core/gather.hpp>
#include <weft/core/task_group.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/this_coro.hpp>

#include <exception>
#include <string>
#include <type_traits>

namespace weft {

namespace detail {

template <class T>
asio::awaitable<T> started(future<T> work) {
  return std::move(work).get();
}
template <class T>
asio::awaitable<T> started(asio::awaitable<T> work) {
  return work;
}

/// Which of several futures have ended, in that order. On one executor's thread.
class arrivals : public ref_counted {
 public:
  /// Tells of the end of one future.
  struct handler {
    using executor_type = asio::any_io_executor;
    executor_type executor;
    intrusive_ptr<arrivals> to;
    std::size_t index;

    [[nodiscard]] const executor_type& get_executor() const noexcept { return executor; }
    void operator()(asio::error_code) { to->arrived(index); }
  };

  explicit arrivals(std::size_t count) : order_(count) {}

  /// How many of them it waits for.
  std::size_t watched = 0;

  void arrived(std::size_t index) noexcept {
    order_[end_++] = index;
    if (next_) std::exchange(next_, nullptr)->set();
  }
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
  [[nodiscard]] std::size_t take() noexcept { return order_[begin_++]; }
  [[nodiscard]] asio::awaitable<void> wait() {
    next_ = make_intrusive<event>();
    return event::wait(next_);
  }

 private:
  std::vector<std::size_t> order_;  // has room for all
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  intrusive_ptr<event> next_;
};

/// What a future that has ended holds.
struct future_access {
  template <class T>
  static const intrusive_ptr<future_state<T>>& state(const future<T>& f) noexcept {
    return f.state_;
  }
  template <class T>
  static expected<T> take(future<T>& f) {
    const intrusive_ptr<future_state<T>> s = std::exchange(f.state_, nullptr);
    if (!s) return tl::unexpected(no_future());
    if (s->failure) return tl::unexpected(as_error(s->failure));
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return std::move(*s->value);
    }
  }
};

/// What is kept of a piece of work: its result, of which the first error ends the others...
template <class Work>
using its_result = stored<result_of<Work>>;
/// ... or either.
template <class Work>
using its_outcome = expected<result_of<Work>>;

template <template <class> class Kept, class... Work>
asio::awaitable<std::tuple<Kept<Work>...>> gather_each(Work... work) {
  std::tuple<std::optional<Kept<Work>>...> kept;
  const auto body = [&](task_group& group) -> asio::awaitable<void> {
    std::apply(
        [&](auto&... out) { (group.spawn(detail::keep(started(std::move(work)), out)), ...); },
        kept);
    co_return;
  };
  co_await with_task_group(body);
  co_return std::apply([](auto&... out) { return std::tuple<Kept<Work>...>{result_in(out)...}; },
                       kept);
}

template <template <class> class Kept, class Work>
asio::awaitable<std::vector<Kept<Work>>> gather_all(std::vector<Work> work) {
  std::vector<std::optional<Kept<Work>>> kept(work.size());
  const auto body = [&](task_group& group) -> asio::awaitable<void> {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      group.spawn(detail::keep(started(std::move(work[i])), kept[i]));
    }
    co_return;
  };
  co_await with_task_group(body);
  std::vector<Kept<Work>> out;
  out.reserve(kept.size());
  for (auto& one : kept) out.push_back(result_in(one));
  co_return out;
}

}  // namespace detail

template <startable... Work>
auto gather(Work&&... work)
    -> asio::awaitable<std::tuple<detail::stored<detail::result_of<Work>>...>> {
  return detail::gather_each<detail::its_result>(std::move(work)...);
}
template <startable Work>
auto gather(std::vector<Work>&& work)
    -> asio::awaitable<std::vector<detail::stored<detail::result_of<Work>>>> {
  return detail::gather_all<detail::its_result>(std::move(work));
}
template <startable Work>
auto gather(std::vector<Work>&& work, as_expected_t)
    -> asio::awaitable<std::vector<expected<detail::result_of<Work>>>> {
  return detail::gather_all<detail::its_outcome>(std::move(work));
}
template <class... Work>
  requires detail::work_as_expected<Work...>
auto gather(Work&&... work) {
  return [all = std::forward_as_tuple(std::forward<Work>(work)...)]<std::size_t... I>(
             std::index_sequence<I...>) {
    return detail::gather_each<detail::its_outcome>(std::get<I>(std::move(all))...);
  }(std::make_index_sequence<sizeof...(Work) - 1>());
}

template <class... Work>
  requires(detail::is_kept_work<Work> || ...)
auto gather(Work&&...) {
  static_assert(detail::results_are_moved_out<Work...>,
                "weft: gather moves the results out of what it is given: write "
                "gather(std::move(calls)).");
}
template <class T>
auto as_completed(const std::vector<future<T>>&) {
  static_assert(detail::results_are_moved_out<T>,
                "weft: as_completed moves the results out of the futures: write "
                "as_completed(std::move(futures)).");
}
template <startable Work>
auto first(std::size_t, const std::vector<Work>&) {
  static_assert(detail::results_are_moved_out<Work>,
                "weft: first moves the results out of what it is given: write "
                "first(k, std::move(futures)).");
}

template <class T>
completions<T>::completions(std::vector<future<T>> futures)
    : futures_(std::move(futures)), arrived_(make_intrusive<detail::arrivals>(futures_.size())) {}

template <class T>
asio::awaitable<std::optional<completion<T>>> completions<T>::next() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  detail::arrivals& all = *arrived_;
  for (std::size_t& i = all.watched; i < futures_.size(); ++i) {
    const auto& state = detail::future_access::state(futures_[i]);
    if (!state) {
      all.arrived(i);
    } else {
      event::async_wait(state, detail::arrivals::handler{executor, arrived_, i});
    }
  }
  if (remaining() == 0) co_return std::nullopt;
  if (all.empty()) co_await all.wait();
  ++given_;
  const std::size_t index = all.take();
  co_return completion<T>{index, detail::future_access::take(futures_[index])};
}

namespace detail {

template <class T>
asio::awaitable<std::vector<completion<T>>> first_of(std::size_t k,
                                                     std::vector<future<T>> futures) {
  const std::size_t all = futures.size();
  if (k > all) {
    throw rpc_error(errc::invalid_argument, "first() wants " + std::to_string(k) +
                                                " results, but has only " + std::to_string(all) +
                                                " futures");
  }
  auto arriving = as_completed(std::move(futures));
  std::vector<completion<T>> out;
  out.reserve(k);
  std::vector<error> failed;
  while (out.size() < k) {
    std::optional<completion<T>> one = co_await arriving.next();
    if (one->result) {
      out.push_back(std::move(*one));
      continue;
    }
    failed.push_back(one->result.error());
    if (out.size() + arriving.remaining() >= k) continue;
    throw rpc_error(failed.front().with([&](error_detail& d) {
      constexpr std::size_t told = 4;
      d.text += " (" + std::to_string(failed.size()) + " of " + std::to_string(all) +
                " results failed, and " + std::to_string(k) + " were wanted";
      for (std::size_t i = 1; i < failed.size() && i <= told; ++i) {
        d.text += "; " + failed[i].message();
      }
      if (failed.size() > told + 1) d.text += "; ...";
      d.text += ")";
    }));
  }
  co_return out;
}

template <class T>
asio::awaitable<std::vector<completion<T>>> first_of(std::size_t k,
                                                     std::vector<asio::awaitable<T>> work) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  std::vector<future<T>> started;
  started.reserve(work.size());
  for (asio::awaitable<T>& w : work) started.push_back(start_on(executor, std::move(w)));
  co_return co_await first_of(k, std::move(started));
}

}  // namespace detail

template <class T>
asio::awaitable<std::vector<completion<T>>> first(std::size_t k, std::vector<future<T>>&& futures) {
  return detail::first_of(k, std::move(futures));
}
template <class T>
asio::awaitable<std::vector<completion<T>>> first(std::size_t k,
                                                  std::vector<asio::awaitable<T>>&& work) {
  return detail::first_of(k, std::move(work));
}

}  // namespace weft
