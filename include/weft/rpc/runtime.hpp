// SPDX-License-Identifier: BSL-1.0
// A worker with everything under it: threads, io_contexts, clock, network, services.
#pragma once

#include <weft/rpc/connection.hpp>
#include <weft/rpc/live_worker.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft {

namespace detail {
/// An io_context whose pending work can be dropped while what that work refers to still lives.
class droppable_context : public asio::io_context {
 public:
  using asio::io_context::io_context;
  void drop_work() { shutdown(); }
};
}  // namespace detail

/// Of one worker. Several may live in one process, each used by one thread.
template <class... Services>
class runtime {
 public:
  /// Opens the listening ends. `transports` decides what can be reached.
  runtime(std::unique_ptr<network> transports, options settings)
      : options_(std::move(settings)), transports_(std::move(transports)), context_(1) {
    addresses_ = transports_->listen(context_);
  }
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime() {
    // Other threads post to the contexts until the pool has stopped and the worker is detached.
    // Coroutines that still wait refer to the worker, whose timers refer to the contexts, as do the
    // transports' listeners: drop the work then, after that those, then the contexts.
    stop_threads();
    if (worker_) {
      worker_->stop_pool();
      worker_->detach();
    }
    context_.drop_work();
    for (auto& io : io_) io->drop_work();
    worker_.reset();
    transports_.reset();
  }

  /// Where this worker listens, for the rendezvous.
  [[nodiscard]] const std::vector<member::address>& addresses() const noexcept {
    return addresses_;
  }

  /// Once, after the rendezvous.
  weft::worker& join(membership all, random_source random = system_random()) {
    std::vector<asio::io_context*> io;
    for (unsigned i = 0; i < options_.io_threads; ++i) {
      io_.push_back(std::make_unique<detail::droppable_context>(1));
      io.push_back(io_.back().get());
    }
    worker_ = std::make_unique<detail::live_worker<>>(
        environment{context_, clock_, std::move(random), *transports_, std::move(io)},
        std::move(all), options_);
    (worker_->add_service(Services::slot, make_service<Services>(*worker_)), ...);
    return *worker_;
  }

  /// Runs `main_` and serves until the run ends, on this thread. Returns what ended it. Requires
  /// `join`.
  error run(std::function<asio::awaitable<void>(weft::worker&)> main_) {
    for (auto& io : io_) {
      guards_.emplace_back(asio::make_work_guard(*io));
      threads_.emplace_back([&c = *io] { c.run(); });
    }
    error result;
    auto body = [](detail::live_worker<>& me, std::function<asio::awaitable<void>(weft::worker&)> f,
                   error& out, asio::io_context& c) -> asio::awaitable<void> {
      out = co_await me.run(std::move(f));
      c.stop();
    };
    std::exception_ptr failure;
    asio::co_spawn(context_, body(*worker_, std::move(main_), result, context_),
                   [&](std::exception_ptr e) {
                     failure = e;
                     if (e) context_.stop();
                   });
    const auto guard = asio::make_work_guard(context_);
    context_.run();
    stop_threads();
    if (failure) std::rethrow_exception(failure);
    return result;
  }

  [[nodiscard]] weft::worker& worker() const noexcept { return *worker_; }
  [[nodiscard]] const options& settings() const noexcept { return options_; }

 private:
  /// A service is an interface that names its implementation, or is its own.
  template <class S>
  static std::unique_ptr<service> make_service(weft::worker& me) {
    if constexpr (requires { typename S::implementation; }) {
      return std::make_unique<typename S::implementation>(me);
    } else {
      return std::make_unique<S>(me);
    }
  }
  void stop_threads() {
    guards_.clear();
    for (auto& io : io_) io->stop();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  options options_;
  real_clock clock_;
  std::unique_ptr<network> transports_;
  detail::droppable_context context_;
  std::vector<std::unique_ptr<detail::droppable_context>> io_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards_;
  std::vector<std::thread> threads_;
  std::vector<member::address> addresses_;
  std::unique_ptr<detail::live_worker<>> worker_;
};

}  // namespace weft
