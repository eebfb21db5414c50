// SPDX-License-Identifier: BSL-1.0
// What tests of references wait with.
#pragma once

#include <weft/core/error.hpp>

#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

namespace weft::testing {

/// A door that functions of several workers wait at.
class gate {
 public:
  enum class state { closed, open };
  explicit gate(state now = state::closed) : open_(now == state::open) {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() {
    std::unique_lock hold(lock_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(hold, [this] { return inside_ == 0; });
  }
  void open() {
    const std::lock_guard hold(lock_);
    open_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard hold(lock_);
    open_ = false;
    arrived_ = 0;
  }
  void pass() {
    std::unique_lock hold(lock_);
    ++arrived_;
    ++inside_;
    changed_.notify_all();
    changed_.wait(hold, [this] { return open_; });
    --inside_;
    changed_.notify_all();
  }
  /// How many came to it since it was closed.
  [[nodiscard]] int arrived() {
    const std::lock_guard hold(lock_);
    return arrived_;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  bool open_;
  int arrived_ = 0;
  int inside_ = 0;
};

/// Waits until `done()`; false if that takes too long.
[[nodiscard]] inline asio::awaitable<bool> eventually(std::function<bool()> done) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > patience) co_return false;
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
  }
  co_return true;
}

/// The error that awaiting throws; success if it throws none.
template <class T>
[[nodiscard]] asio::awaitable<error> thrown_by(asio::awaitable<T> work) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
    } else {
      static_cast<void>(co_await std::move(work));
    }
  } catch (const rpc_error& e) {
    co_return e.error();
  }
  co_return error();
}

}  // namespace weft::testing
