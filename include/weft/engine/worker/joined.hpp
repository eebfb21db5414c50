// SPDX-License-Identifier: BSL-1.0
// A worker that its program owns, and what becomes of it when its owner or its loop goes first.
//
//   weft::owned_worker ──► joined ◄── joined_here, a service of the user's io_context, if it is one
//                            └── runtime: the worker, its threads, its contexts
//
// On a loop of its own a worker ends with its owner, as nothing else runs what it posted. On a
// loop of the user's there may be handlers and coroutines of the worker's when its owner goes: it
// stays with the loop until they have run, or the io_context has destroyed them, whichever is
// first. (Coroutines that the user started there are his: they do not use a worker without an
// owner.)
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/waiter_registry.hpp>
#include <weft/core/event.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/rendezvous/rendezvous.hpp>
#include <weft/engine/worker/runtime.hpp>
#include <weft/rpc/detail/owned_life.hpp>

#include <asio/awaitable.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace weft::engine {

class joined final : public owned_life, public std::enable_shared_from_this<joined> {
 public:
  /// `said` is called once, with what ended the run, on the thread that ends it.
  joined(std::unique_ptr<runtime> life, asio::io_context* loop,
         std::function<void(const error&)> said);
  ~joined() override;

  [[nodiscard]] runtime& life() { return *life_; }
  /// Serves from now on. `store` is kept until the run is over, as this process may serve it.
  void begin(membership all, random_source random, store_ptr store);

  [[nodiscard]] weft::worker& worker() override;
  error run() override;
  bool run_for(duration most) override;
  void leave() override;
  void fail(std::string why) override;
  [[nodiscard]] asio::awaitable<error> ended() override;
  void abandon() noexcept override;

  /// The user's io_context is about to destroy what waits in it ...
  void loop_ends() noexcept;
  /// ... and has destroyed it.
  void loop_gone() noexcept;

 private:
  /// For those who wait for the end; they do not hold the worker.
  struct outcome {
    const intrusive_ptr<event> there = make_intrusive<event>();
    error what;  // before `there` is set
  };
  static asio::awaitable<error> wait_for(std::shared_ptr<outcome> end, std::weak_ptr<joined> of);
  void end_on_loop() noexcept;
  void conclude(std::optional<error> otherwise = std::nullopt) noexcept;
  void free_when_alone(int tries);
  /// On the loop; nothing if the user's is gone or about to go. Any thread.
  void on_loop(std::function<void(joined&)> what);

  std::unique_ptr<runtime> life_;  // null: freed, though its owner is still there
  asio::io_context* const loop_;   // the user's; null: it has its own
  const std::shared_ptr<waiter_registry> loop_lives_;
  const std::function<void(const error&)> said_;
  store_ptr store_;
  const intrusive_ptr<event> left_ = make_intrusive<event>();
  std::shared_ptr<std::optional<std::string>> failure_ =
      std::make_shared<std::optional<std::string>>();  // before left_ is set, once
  std::atomic<bool> said_so_{false};                   // left or failed
  const std::shared_ptr<outcome> end_ = std::make_shared<outcome>();
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> keeps_loop_;
  std::thread ends_threads_;
  std::atomic<bool> abandoned_{false};
  std::atomic<int> inside_{0};  // `run` and `run_for`
};

/// The joined workers of one io_context of the user's, freed with it at the latest. Any thread.
class joined_here final : public asio::execution_context::service {
 public:
  WEFT_PROCESS_WIDE inline static asio::execution_context::id id;

  explicit joined_here(asio::execution_context& loop);
  ~joined_here() override;
  void keep(std::shared_ptr<joined> one);
  void forget(const joined& one) noexcept;

 private:
  void shutdown() override;
  std::mutex mutex_;
  std::vector<std::shared_ptr<joined>> all_;
};

}  // namespace weft::engine

#include <weft/engine/worker/impl/joined.hpp>
