// SPDX-License-Identifier: BSL-1.0
// Which thread runs a worker's loop, and which threads must not wait for a worker, because one
// waits for them.
#pragma once

#include <weft/config.hpp>
#include <weft/core/error.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace weft::detail {

/// This thread runs a worker's loop, or carries its connections, while one lives here.
class nonblocking_thread {
 public:
  nonblocking_thread() noexcept : before_(std::exchange(here_, true)) {}
  nonblocking_thread(const nonblocking_thread&) = delete;
  nonblocking_thread& operator=(const nonblocking_thread&) = delete;
  ~nonblocking_thread() { here_ = before_; }

  [[nodiscard]] static bool here() noexcept { return here_; }

 private:
  WEFT_PROCESS_WIDE inline static thread_local bool here_ = false;
  bool before_;
};

/// The one thread of a loop: the first that runs it. Any thread.
class loop_thread {
 public:
  /// This thread is the one from now on. Throws rpc_error invalid_argument if another is, also once
  /// the run is over: that one waits for the worker's threads then.
  void bind(const std::string& worker) {
    if (thread_.load(std::memory_order_relaxed) == here()) return;
    const void* before = nullptr;
    if (thread_.compare_exchange_strong(before, here())) return;
    throw rpc_error(errc::invalid_argument, "a second thread runs the loop of worker '" + worker +
                                                "': only the first thread that ran it may run it");
  }
  /// The same for what the loop runs by itself: once the run is over, any thread may.
  void bind_unless_over(const std::string& worker) {
    if (!over()) bind(worker);
  }
  /// Whether this is that thread, and the run not over.
  [[nodiscard]] bool is_this() const noexcept { return !over() && thread_.load() == here(); }
  [[nodiscard]] bool bound() const noexcept { return thread_.load() != nullptr; }
  /// Nobody has to run it any more.
  void end() noexcept { over_.store(true); }
  [[nodiscard]] bool over() const noexcept { return over_.load(); }

  /// Of a loop that its thread enters and leaves: while one lives, it is inside.
  class inside {
   public:
    inside(loop_thread& loop, const std::string& worker) : loop_(loop) {
      loop.bind(worker);
      loop_.inside_.fetch_add(1);
      loop_.times_.fetch_add(1);
    }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    ~inside() { loop_.inside_.fetch_sub(1); }

   private:
    loop_thread& loop_;
    const nonblocking_thread mark_;
  };
  /// How often one has entered it.
  [[nodiscard]] std::uint64_t times() const noexcept { return times_.load(); }
  [[nodiscard]] bool somebody_inside() const noexcept { return inside_.load() > 0; }

 private:
  /// Differs between the threads that live.
  [[nodiscard]] WEFT_PROCESS_WIDE static const void* here() noexcept {
    static thread_local const char mark = 0;
    return &mark;
  }

  std::atomic<const void*> thread_{nullptr};
  std::atomic<int> inside_{0};
  std::atomic<std::uint64_t> times_{0};
  std::atomic<bool> over_{false};
};

}  // namespace weft::detail
