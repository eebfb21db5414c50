// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/core/task_group.hpp that are compiled once (weft/src_base.hpp).
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/future.hpp>
#include <weft/core/task_group.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/error.hpp>
#include <asio/this_coro.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace weft {

struct task_group::state : ref_counted {
  std::size_t children = 0;  // that run
  bool stopped = false;
  intrusive_ptr<event> ended;
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
      if (!by_cancel) further.emplace_back(detail::what_of(e));
    } catch (const std::exception& e) {
      further.emplace_back(detail::what_of(e));
    } catch (...) {
      further.emplace_back("an exception that is not a std::exception");
    }
  }
};

/// One that runs, until it ends or its coroutine is destroyed without having run.
class task_group::running {
 public:
  explicit running(intrusive_ptr<state> s) : state_(std::move(s)) {
    if (state_->children == 0) state_->ended = make_intrusive<event>();
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

WEFT_DECL task_group::task_group(asio::any_io_executor executor)
    : executor_(std::move(executor)), state_(make_intrusive<state>()) {}
WEFT_DECL task_group::~task_group() { cancel(); }

WEFT_DECL std::size_t task_group::size() const noexcept { return state_->children; }

WEFT_DECL void task_group::spawn(asio::awaitable<void> child) {
  if (state_->stopped) return;
  const std::size_t place = reserve();
  future<void> started = start_on(executor_, watch(this, place, running(state_), std::move(child)));
  // What it did inline: it may have ended, or stopped the group; then its future goes here.
  if (started.ready() || state_->stopped) return;
  children_[place] = std::move(started);
}

WEFT_DECL void task_group::cancel() {
  state_->stopped = true;
  free_.clear();
  std::vector<future<void>>().swap(children_);
}

WEFT_DECL asio::awaitable<void> task_group::join() {
  const intrusive_ptr<state> s = state_;
  const bool throws = co_await asio::this_coro::throw_if_cancelled();
  co_await asio::this_coro::throw_if_cancelled(false);
  const auto before = co_await asio::this_coro::cancellation_state;
  bool cancelled = before.cancelled() != asio::cancellation_type::none;
  if (cancelled) cancel();
  while (s->children > 0) {
    try {
      // No child may be left behind.
      co_await detail::or_die([&] { return event::wait(s->ended); });
    } catch (const std::system_error&) {
      cancelled = true;
      cancel();
    }
  }
  co_await asio::this_coro::throw_if_cancelled(throws);
  if (s->first) rethrow(*s);
  if (cancelled) throw std::system_error(asio::error::operation_aborted);
}

WEFT_DECL void task_group::rethrow(const state& s) {
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

/// `group` is touched only while `stopped` is not set, so never after its end.
WEFT_DECL asio::awaitable<void> task_group::watch(task_group* group, std::size_t place,
                                                  running mine, asio::awaitable<void> child) {
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
WEFT_DECL std::size_t task_group::reserve() {
  if (free_.empty()) {
    children_.emplace_back();
    free_.reserve(children_.capacity());  // so that `forget` allocates nothing
    return children_.size() - 1;
  }
  const std::size_t place = free_.back();
  free_.pop_back();
  return place;
}

WEFT_DECL void task_group::forget(std::size_t place) noexcept {
  std::move(children_[place]).detach();
  free_.push_back(place);
}

}  // namespace weft
