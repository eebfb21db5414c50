// SPDX-License-Identifier: BSL-1.0
// Asio's thread pool with threads that prepare themselves before their first work.
#pragma once

#include <asio/thread_pool.hpp>

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace weft::detail {

/// An executor as any `asio::thread_pool`. `thread_starts`, if there is one, runs on each thread
/// before anything else does; it must not throw.
class compute_pool final : public asio::thread_pool {
 public:
  // Asio's own threads offer no place for that, so it gets none of its own: ours attach themselves.
  compute_pool(std::size_t threads, const std::function<void()>& thread_starts)
      : asio::thread_pool(std::size_t{0}) {
    threads_.reserve(threads);
    try {
      for (std::size_t i = 0; i < threads; ++i) {
        threads_.emplace_back([this, thread_starts] {
          if (thread_starts) thread_starts();
          attach();
        });
      }
    } catch (...) {
      stop();
      join();
      throw;
    }
  }
  compute_pool(const compute_pool&) = delete;
  compute_pool& operator=(const compute_pool&) = delete;
  ~compute_pool() {
    stop();
    join();
  }

  /// Blocks until the threads have ended: after `stop`. Further calls do nothing.
  void join() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  /// Destroys what was submitted and has not begun. After `join`.
  void drop_work() { shutdown(); }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace weft::detail
