// SPDX-License-Identifier: BSL-1.0
// A worker: one process, or thread, of a run. Its one implementation is engine/worker/worker.hpp.
#pragma once

#include <weft/config.hpp>
#include <weft/core/call_scope.hpp>
#include <weft/core/future.hpp>
#include <weft/core/random.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/function_entry.hpp>
#include <weft/rpc/fwd.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/service.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// Counts and bytes of a worker since its start.
struct worker_stats {
  std::uint64_t calls = 0;             ///< requests sent, posts included
  std::uint64_t served = 0;            ///< requests received
  std::uint64_t posts_failed = 0;      ///< one-way calls that failed here
  std::uint64_t creations_failed = 0;  ///< makes and remotes that failed here and were not used
  std::uint64_t late_replies = 0;      ///< replies whose call was given up
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

namespace detail {
/// The io_context that the worker's thread runs. For calls and services; users have `get_executor`.
[[nodiscard]] asio::io_context& context_of(const worker& me) noexcept;
/// Prints why work that nobody awaits has failed (core/impl/say_failed.hpp).
void say_failed(const std::string& who, const char* what, const std::exception_ptr& why) noexcept;
}  // namespace detail

/// The worker on which a remote function, or main, runs. Members may be called from any thread
/// unless they say otherwise; none of them waits.
///
///   asio::awaitable<void> main_(weft::worker& me) { co_await me.peer(1).call<&f>(); }
class worker {
 public:
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  virtual ~worker() = default;

  /// The worker with that name or rank, which may be this one. Else throws rpc_error unknown_peer,
  /// whose text lists the known names.
  [[nodiscard]] weft::peer peer(std::string_view name);
  template <std::integral Rank>
  [[nodiscard]] weft::peer peer(Rank rank);
  /// All workers of that role, by rank.
  [[nodiscard]] std::vector<weft::peer> peers(std::string_view role);

  /// Hands an object to weft's reference counting; this worker owns it.
  template <class T>
  [[nodiscard]] rref<T> share(T value);
  /// The same for an object that exists already; other code here may go on using it. Throws
  /// rpc_error invalid_argument if `object` is null.
  template <class T>
  [[nodiscard]] rref<T> share(std::shared_ptr<T> object);
  /// Makes a T here, as `peer::make` does there.
  template <class T, class... Args>
  [[nodiscard]] rref<T> make(Args&&... args);

  /// Gives an object a name at this worker, until `unpublish` or the end of the run. Others find it
  /// by that name (`peer::lookup`). Throws rpc_error duplicate_name if another object has the name.
  /// weft/rref/published.hpp defines it and says more.
  template <class T>
  void publish(std::string name, const rref<T>& r);
  /// A mistake that a static_assert explains: an object that is not shared.
  template <class T>
  void publish(std::string name, const T& object);
  bool unpublish(std::string_view name);

  /// Starts a coroutine on the worker's thread, at once if this is that thread. It runs in the
  /// caller's scope: it inherits deadline, autograd context and trace. If work is to serve others
  /// for long, use `spawn_detached` instead. Dropping the future cancels the coroutine.
  template <class T>
  [[nodiscard]] future<T> spawn(asio::awaitable<T> work) {
    return start_on(get_executor(), std::move(work));
  }
  /// The same for work in the background: it inherits nothing, and nobody waits for it. weft prints
  /// its exception, unless it was cancelled. It does not delay the end of the run. If it still
  /// waits then, it is destroyed with its io_context: with the run, or with your own loop.
  template <class T>
  void spawn_detached(asio::awaitable<T> work) {
    start_on(executor_in(nullptr), watched(name(), std::move(work))).detach();
  }

  [[nodiscard]] const std::string& name() const noexcept { return members_.self().name; }
  [[nodiscard]] const std::string& role() const noexcept { return members_.self().role; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return members_.rank; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return members_.size(); }
  [[nodiscard]] const membership& members() const noexcept { return members_; }
  [[nodiscard]] const options& settings() const noexcept { return options_; }

  /// Runs handlers on the worker's one thread, in the scope of the code that calls this.
  [[nodiscard]] asio::any_io_executor get_executor() const { return executor_in(this_scope()); }
  /// The same, in `scope`; null: in none.
  [[nodiscard]] virtual asio::any_io_executor
  executor_in(intrusive_ptr<const call_scope> scope) const = 0;
  /// Whether this is the worker's own thread, in its loop.
  [[nodiscard]] virtual bool on_thread() const noexcept = 0;
  /// Whether a thread runs the loop. `idle`: no thread is in the worker's own loop just now, or
  /// none has run your io_context yet.
  enum class loop_state : std::uint8_t { idle, runs, over };
  [[nodiscard]] virtual loop_state loop() const noexcept = 0;
  /// How often a thread has entered a loop of the worker's own.
  [[nodiscard]] virtual std::uint64_t times_run() const noexcept = 0;
  /// Whether this worker needs this thread: the thread runs its loop, or I/O of any worker.
  [[nodiscard]] virtual bool needs_this_thread() const noexcept = 0;
  /// Runs plain functions and backward nodes, on threads that may compute for long.
  [[nodiscard]] virtual const asio::any_io_executor& compute_pool() const noexcept = 0;
  [[nodiscard]] weft::clock& time() const noexcept { return time_; }
  /// The random source that it was made with; threads take turns.
  [[nodiscard]] random_source& random() noexcept { return random_; }
  [[nodiscard]] virtual worker_stats stats() const noexcept = 0;

  /// Asks the run to end as if this worker's main had failed with `why`. The worker's thread.
  virtual void shutdown(const error& why) = 0;

  /// The service in S's place. Throws rpc_error: invalid_argument if the worker has none.
  template <class S>
  [[nodiscard]] S& use() const {
    const auto& s = services_[static_cast<std::size_t>(S::place)];
    if (!s) throw rpc_error(without_service(S::place));
    return static_cast<S&>(*s);
  }

  // ── for calls and services ──

  /// Throws rpc_error: invalid_argument in a shared library with a list of functions of its own.
  void require_its_functions() const {
    if (process_functions_ == &detail::first_function) return;
    throw rpc_error(errc::invalid_argument,
                    "this shared library cannot see the symbols of the program that has loaded "
                    "it: link the program with -rdynamic (CMake: set ENABLE_EXPORTS of its "
                    "target)");
  }
  [[nodiscard]] virtual weft::link& link_to(std::uint32_t rank) noexcept = 0;
  template <class Visit>
  void each_service(Visit&& visit) {
    for (const auto& s : services_) {
      if (s) visit(*s);
    }
  }
  /// The text of an exception of a user's function, for other workers.
  [[nodiscard]] std::string in_words(const std::exception& e) const;

 protected:
  /// The coroutine may outlive the worker.
  template <class T>
  static asio::awaitable<void> watched(std::string of, asio::awaitable<T> work) {
    try {
      static_cast<void>(co_await std::move(work));
    } catch (...) {
      detail::say_failed(of, "detached work", std::current_exception());
    }
  }

  friend asio::io_context& detail::context_of(const worker& me) noexcept;
  [[nodiscard]] asio::io_context& context() const noexcept { return context_; }

  worker(asio::io_context& context, weft::clock& time, random_source random, membership all,
         options settings)
      : context_(context),
        time_(time),
        random_(one_at_a_time(std::move(random))),
        members_(std::move(all)),
        options_(std::move(settings)) {}

  [[nodiscard]] error without_service(service_id which) const;

  function_entry* const* const process_functions_ =
      &detail::first_function;  // of the worker's code
  asio::io_context& context_;
  weft::clock& time_;
  random_source random_;
  membership members_;
  options options_;
  std::array<std::unique_ptr<service>, static_cast<std::size_t>(service_id::count)> services_;
};

inline asio::io_context& detail::context_of(const worker& me) noexcept { return me.context(); }

inline const std::string& link::name() const noexcept { return me_.members().members[rank_].name; }

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/rpc/impl/worker.hpp>
#endif
