// SPDX-License-Identifier: BSL-1.0
// Coroutines on an io_context of the test's own thread, step by step.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>

#include <exception>
#include <string>
#include <utility>

namespace weft::testing {

/// Runs all that can run now.
inline void settle(asio::io_context& io) {
  io.restart();
  io.poll();
}
/// Runs until nothing is left to wait for; only for work that ends by itself.
inline void finish(asio::io_context& io) {
  io.restart();
  io.run();
}

/// One coroutine and how it ended.
class task {
 public:
  task(asio::io_context& io, asio::awaitable<void> work)
      : task(io.get_executor(), std::move(work)) {}
  template <class Executor>
  task(const Executor& on, asio::awaitable<void> work) {
    asio::co_spawn(on, std::move(work),
                   asio::bind_cancellation_slot(stop_.slot(), [this](std::exception_ptr e) {
                     ended_ = true;
                     failure_ = std::move(e);
                   }));
  }
  task(const task&) = delete;
  task& operator=(const task&) = delete;

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool failed() const noexcept { return failure_ != nullptr; }
  /// The text of what it threw; empty if it threw nothing.
  [[nodiscard]] std::string what() const {
    if (!failure_) return {};
    try {
      std::rethrow_exception(failure_);
    } catch (const std::exception& e) {
      return e.what();
    } catch (...) {
      return "not a std::exception";
    }
  }
  void cancel() { stop_.emit(asio::cancellation_type::terminal); }

 private:
  asio::cancellation_signal stop_;
  bool ended_ = false;
  std::exception_ptr failure_;
};

}  // namespace weft::testing
