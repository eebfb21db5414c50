// SPDX-License-Identifier: BSL-1.0
// A worker: one process's (or test thread's) end of everything. Peers, links, executors, services.
#pragma once

#include <weft/core/future.hpp>
#include <weft/core/random.hpp>
#include <weft/core/scope.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/detail/compute_pool.hpp>
#include <weft/rpc/detail/late_flush.hpp>
#include <weft/rpc/detail/report.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/running_functions.hpp>
#include <weft/rpc/service.hpp>

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class network;

/// What a worker did so far. Counts and bytes since its start.
struct worker_stats {
  std::uint64_t calls = 0;             ///< requests sent, posts included
  std::uint64_t served = 0;            ///< requests received
  std::uint64_t posts_failed = 0;      ///< one-way calls that failed here
  std::uint64_t creations_failed = 0;  ///< makes and remotes that failed here, and none used them
  std::uint64_t late_replies = 0;      ///< replies that nobody waited for
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

/// What a worker is made of and does not own; a simulator brings its own. Outlives the worker.
struct environment {
  asio::io_context& context;  ///< the worker's executor; one thread runs it
  weft::clock& time;
  random_source random;
  network& transports;
  std::vector<asio::io_context*> io;  ///< where links live; empty: on `context`
  /// Where connections are opened, accepted and judged, and where signs of life come from: a thread
  /// that runs no user code for long. Null: `context`.
  asio::io_context* front = nullptr;
  /// Rings on `front`'s thread; null: only the end of a turn flushes what it sent.
  detail::flush_alarm* alarm = nullptr;
};

/// Members are for the worker's own thread unless they say otherwise.
class worker {
 public:
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  virtual ~worker() = default;

  /// The worker with that name or rank, itself included. Never waits. Throws rpc_error
  /// unknown_peer, whose text lists the known names. Any thread.
  [[nodiscard]] weft::peer peer(std::string_view name);
  template <std::integral Rank>
  [[nodiscard]] weft::peer peer(Rank rank);
  /// All workers of that role, by rank. Any thread.
  [[nodiscard]] std::vector<weft::peer> peers(std::string_view role);

  /// Hands an object to weft's reference counting; this worker owns it. Any thread.
  template <class T>
  [[nodiscard]] rref<T> share(T value);

  /// Starts a coroutine here, in the caller's scope.
  template <class T>
  [[nodiscard]] future<T> spawn(asio::awaitable<T> work) {
    return start_on(scoped(env_.context, this_scope()), std::move(work));
  }

  [[nodiscard]] const std::string& name() const noexcept { return members_.self().name; }
  [[nodiscard]] const std::string& role() const noexcept { return members_.self().role; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return members_.rank; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return members_.size(); }
  [[nodiscard]] const membership& members() const noexcept { return members_; }
  [[nodiscard]] const options& settings() const noexcept { return options_; }
  template <class = void>
  [[nodiscard]] asio::any_io_executor get_executor() {
    return scoped(env_.context, this_scope());
  }
  [[nodiscard]] asio::io_context& context() const noexcept { return env_.context; }
  /// Whether this is the worker's own thread, in its loop.
  [[nodiscard]] bool on_thread() const noexcept {
    return env_.context.get_executor().running_in_this_thread();
  }
  [[nodiscard]] asio::thread_pool& pool() noexcept { return pool_; }
  [[nodiscard]] weft::clock& time() const noexcept { return env_.time; }
  /// The environment's, asked by one thread at a time. Any thread.
  [[nodiscard]] random_source& random() noexcept { return random_; }
  /// Any thread.
  [[nodiscard]] worker_stats stats() const noexcept;
  /// The plain functions that run on the pool now. Any thread.
  [[nodiscard]] running_functions& running() noexcept { return running_; }

  /// Asks the run to end as if this worker's main had failed with `why`.
  virtual void shutdown(const error& why) = 0;

  /// The service in S's slot. Requires that it was added. Any thread.
  template <class S>
  [[nodiscard]] S& use() const noexcept {
    return static_cast<S&>(*services_[static_cast<std::size_t>(S::slot)]);
  }
  void add_service(service_slot slot, std::unique_ptr<service> s) {
    services_[static_cast<std::size_t>(slot)] = std::move(s);
  }

  // ── for links and services; any thread unless marked ──

  [[nodiscard]] virtual link& to(std::uint32_t rank) noexcept = 0;
  /// Has services told when this turn of the loop ends, behind what is ready now. Worker's thread.
  virtual void hold_turn() noexcept = 0;
  template <class Visit>
  void each_service(Visit&& visit) {
    for (const auto& s : services_) {
      if (s) visit(*s);
    }
  }
  /// What an exception of a user's function says to others.
  [[nodiscard]] std::string in_words(const std::exception& e) const {
    for (const auto& s : services_) {
      if (!s) continue;
      if (auto words = s->in_words(e)) return *std::move(words);
    }
    return e.what();
  }
  [[nodiscard]] timer_list& deadlines() noexcept { return deadlines_; }  // worker's thread
  /// A one-way call failed here: counted, and the first one of each function is said on standard
  /// error, unless it was given up. Any thread.
  void post_failed(std::uint64_t function, std::string_view named, std::uint32_t from,
                   const error& why) noexcept;
  /// An object that `from` wanted could not be made here, and nobody has been told: as a post that
  /// failed. `function` is 0 if it is not here. Any thread.
  void creation_failed(std::uint64_t function, std::uint32_t from, const error& why) noexcept;
  std::atomic<std::uint64_t> calls{0}, served{0}, posts_failed{0}, creations_failed{0};
  std::atomic<std::uint64_t> late_replies{0};
  std::atomic<std::uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0}, bytes_received{0};

 protected:
  worker(environment env, membership all, options settings);

  environment env_;
  std::mutex random_mutex_;
  random_source random_ = [this] {
    const std::lock_guard lock(random_mutex_);
    return env_.random();
  };
  membership members_;
  options options_;
  timer_list deadlines_;
  running_functions running_;
  detail::compute_pool pool_;
  detail::once_each failed_posts_, failed_creations_;
  std::array<std::unique_ptr<service>, static_cast<std::size_t>(service_slot::count)> services_;
};

inline worker::worker(environment env, membership all, options settings)
    : env_(std::move(env)),
      members_(std::move(all)),
      options_(std::move(settings)),
      deadlines_(env_.time, env_.context),
      pool_(std::max(1u, options_.pool_threads), options_.thread_starts) {}

inline worker_stats worker::stats() const noexcept {
  worker_stats out;
  out.calls = calls;
  out.served = served;
  out.posts_failed = posts_failed;
  out.creations_failed = creations_failed;
  out.late_replies = late_replies;
  out.frames_sent = frames_sent;
  out.frames_received = frames_received;
  out.bytes_sent = bytes_sent;
  out.bytes_received = bytes_received;
  return out;
}

inline void worker::post_failed(std::uint64_t function, std::string_view named, std::uint32_t from,
                                const error& why) noexcept {
  posts_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  try {
    // What nobody knows has one name: peers choose the number.
    if (!failed_posts_.first(named.empty() ? 0 : function)) return;
    detail::say(name(), "a post of " +
                            (named.empty() ? std::string("a function that is not here")
                                           : "'" + std::string(named) + "'") +
                            " by worker '" + members_.members[from].name +
                            "' failed: " + why.message() +
                            "; others of this function are only counted (posts_failed)");
  } catch (...) {  // it is counted
  }
}

inline void worker::creation_failed(std::uint64_t function, std::uint32_t from,
                                    const error& why) noexcept {
  creations_failed.fetch_add(1, std::memory_order_relaxed);
  if (why == errc::cancelled || why == errc::peer_died) return;
  try {
    if (!failed_creations_.first(function)) return;
    detail::say(name(), "a make or remote by worker '" + members_.members[from].name +
                            "' failed, and nobody asked for its object: " + why.message() +
                            "; others of this function are only counted (creations_failed)");
  } catch (...) {  // it is counted
  }
}

inline const std::string& link::name() const noexcept { return me_.members().members[rank_].name; }

inline void detail::batch_ends(worker& here) noexcept {
  here.each_service([](service& s) { s.batch_ends(); });
}

}  // namespace weft
