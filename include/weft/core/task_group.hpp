// SPDX-License-Identifier: BSL-1.0
// Children that end before their parent does.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/future.hpp>

#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/error.hpp>
#include <asio/this_coro.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace weft {

namespace detail {
template <class T>
inline constexpr bool is_expected = false;
template <class T, class E>
inline constexpr bool is_expected<tl::expected<T, E>> = true;
}  // namespace detail

/// Spawned children and the wait for all of them. Use through `with_task_group`. On the executor's
/// thread only.
class task_group {
 public:
  explicit task_group(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group() { cancel(); }

  /// Starts a child in the caller's scope, on the group's executor. After a child has failed, or
  /// `cancel`, the child is dropped instead. Nothing is kept of a child that has ended.
  void spawn(asio::awaitable<void> child) {
    if (state_->stopped) return;
    const std::size_t place = reserve();
    future<void> started;
    try {
      started = start_on(executor_, watch(this, place, running(state_), std::move(child)));
    } catch (...) {
      if (!state_->stopped) forget(place);
      throw;
    }
    // What it did inline: it may have ended, or stopped the group; then its future goes here.
    if (started.ready() || state_->stopped) return;
    children_[place] = std::move(started);
  }

  /// As above; nobody gets the child's result.
  template <class T>
    requires(!std::is_void_v<T>)
  void spawn(asio::awaitable<T> child) {
    static_assert(!detail::is_expected<T>,
                  "weft: nobody would see the error in a child's weft::expected; spawn the call "
                  "without weft::as_expected.");
    spawn(without_result(std::move(child)));
  }

  /// Asks every child to end.
  void cancel() {
    state_->stopped = true;
    free_.clear();
    std::vector<future<void>>().swap(children_);
  }

  /// Children that run.
  [[nodiscard]] std::size_t size() const noexcept { return state_->children; }

  /// Waits until every child has ended. When a child fails, the others are cancelled; its error is
  /// thrown, and what else failed (not counting the cancelled) stands in the text of an rpc_error.
  /// Cancelling the wait cancels the children; it still lasts until they have ended.
  [[nodiscard]] asio::awaitable<void> join() {
    const intrusive_ptr<state> s = state_;
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto before = co_await asio::this_coro::cancellation_state;
    bool cancelled = before.cancelled() != asio::cancellation_type::none;
    if (cancelled) cancel();
    bool starved = false;
    while (s->children > 0) {
      try {
        auto ended = std::exchange(s->wait, std::nullopt);
        if (!ended) ended.emplace(detail::insist([&] { return event::wait(s->ended); }));
        co_await std::move(*ended);
      } catch (const std::bad_alloc&) {
        starved = true;
        cancel();
      } catch (const std::system_error&) {
        cancelled = true;
        cancel();
      }
    }
    co_await asio::this_coro::throw_if_cancelled(throws);
    if (s->first) rethrow(*s);
    if (cancelled) throw std::system_error(asio::error::operation_aborted);
    if (starved) throw std::bad_alloc();
  }

 private:
  struct state : ref_counted {
    std::size_t children = 0;  // that run
    bool stopped = false;
    intrusive_ptr<event> ended;
    std::optional<asio::awaitable<void>> wait;  // for that, as no child may be left behind
    std::exception_ptr first;
    std::vector<std::string> further;

    void note(std::exception_ptr failure) {
      if (!first) {
        first = std::move(failure);
        return;
      }
      try {
        std::rethrow_exception(std::move(failure));
      } catch (const std::system_error& e) {
        const bool by_cancel = stopped && (e.code() == asio::error::operation_aborted ||
                                           e.code() == make_error_code(errc::cancelled));
        if (!by_cancel) further.emplace_back(e.what());
      } catch (const std::exception& e) {
        further.emplace_back(e.what());
      } catch (...) {
        further.emplace_back("an exception that is not a std::exception");
      }
    }
  };

  [[noreturn]] static void rethrow(const state& s) {
    if (s.further.empty()) std::rethrow_exception(s.first);
    try {
      std::rethrow_exception(s.first);
    } catch (const rpc_error& e) {
      throw rpc_error(e.error().with([&](error_detail& d) {
        d.text += " (and " + std::to_string(s.further.size()) + " more failed: ";
        for (std::size_t i = 0; i < s.further.size(); ++i) {
          d.text += (i == 0 ? "" : "; ") + s.further[i];
        }
        d.text += ")";
      }));
    }
  }

  template <class T>
  static asio::awaitable<void> without_result(asio::awaitable<T> child) {
    static_cast<void>(co_await std::move(child));
  }

  /// One that runs, until it ends or its coroutine is destroyed without having run.
  class running {
   public:
    explicit running(intrusive_ptr<state> s) : state_(std::move(s)) {
      if (state_->children == 0) {
        auto ended = make_intrusive<event>();
        state_->wait.emplace(event::wait(ended));
        state_->ended = std::move(ended);
      }
      ++state_->children;
    }
    running(running&&) noexcept = default;
    running& operator=(running&&) = delete;
    ~running() { end(); }
    void end() noexcept {
      const intrusive_ptr<state> s = std::exchange(state_, nullptr);
      if (s && --s->children == 0) s->ended->set();
    }
    state& group() const noexcept { return *state_; }

   private:
    intrusive_ptr<state> state_;
  };

  /// `group` is touched only while `stopped` is not set, so never after its end.
  static asio::awaitable<void> watch(task_group* group, std::size_t place, running mine,
                                     asio::awaitable<void> child) {
    state& s = mine.group();
    try {
      co_await std::move(child);
    } catch (...) {
      s.note(std::current_exception());
    }
    if (!s.stopped) {
      if (s.first) {
        group->cancel();
      } else {
        group->forget(place);
      }
    }
    mine.end();
  }

  /// A place for a child's future.
  [[nodiscard]] std::size_t reserve() {
    if (free_.empty()) {
      children_.emplace_back();
      free_.reserve(children_.capacity());  // so that `forget` allocates nothing
      return children_.size() - 1;
    }
    const std::size_t place = free_.back();
    free_.pop_back();
    return place;
  }
  void forget(std::size_t place) noexcept {
    std::move(children_[place]).detach();
    free_.push_back(place);
  }

  asio::any_io_executor executor_;
  intrusive_ptr<state> state_ = make_intrusive<state>();
  std::vector<future<void>> children_;  // empty ones at the places that are free
  std::vector<std::size_t> free_;
};

/// Runs `body(group)`, then waits for its children. When the body throws, they are cancelled first,
/// and its error is the one that is thrown.
template <class Body>
[[nodiscard]] asio::awaitable<void> with_task_group(Body body) {
  task_group group(co_await asio::this_coro::executor);
  asio::awaitable<void> joined = group.join();  // has its memory before there are children
  std::exception_ptr failure;
  try {
    co_await body(group);
  } catch (...) {
    failure = std::current_exception();  // rethrown below, after the children have ended
    group.cancel();
  }
  // A coroutine that was cancelled itself could await nothing otherwise.
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  try {
    co_await std::move(joined);
  } catch (...) {
    if (!failure) failure = std::current_exception();  // else the body's came first
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
