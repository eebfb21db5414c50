// SPDX-License-Identifier: BSL-1.0
// Workers of this process that joined a run.
#pragma once

#include <weft/run.hpp>

#include <chrono>
#include <core/bounded_wait.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace weft::testing {

/// Differs between the runs of this process, and between processes.
inline std::string fresh_run() {
  static int count = 0;
  return "join " + std::to_string(::getpid()) + " " + std::to_string(++count);
}

/// Options of worker `rank` of `size` in the run `run`.
inline options seat_of(const std::string& run, std::uint32_t rank, std::uint32_t size) {
  options o;
  o.place = placement{.rank = rank, .size = size, .on_this_host = size, .launcher = {}};
  o.run_id = run;
  o.compute_threads = 1;
  o.intra_op_threads = 1;
  o.rendezvous_deadline = std::chrono::seconds(30);
  o.shutdown_deadline = std::chrono::seconds(10);
  return o;
}

/// `size` workers, each on a loop of its own, which a thread runs.
class joined_pair {
 public:
  explicit joined_pair(std::uint32_t size = 2, unsigned io_threads = 1, loss_policy on_loss = {}) {
    const std::string run = fresh_run();
    std::vector<std::thread> meeting;
    workers_.resize(size);
    ends_.resize(size);
    for (std::uint32_t r = 0; r < size; ++r) {
      meeting.emplace_back([this, &run, r, size, io_threads, &on_loss] {
        options o = seat_of(run, r, size);
        o.io_threads = io_threads;
        o.on_loss = on_loss;
        workers_[r] = join_blocking<unix_socket, tcp>(std::move(o));
      });
    }
    for (std::thread& t : meeting) t.join();
    for (std::uint32_t r = 0; r < size; ++r) {
      loops_.emplace_back([this, r] { ends_[r] = workers_[r].run(); });
    }
  }
  joined_pair(const joined_pair&) = delete;
  joined_pair& operator=(const joined_pair&) = delete;
  ~joined_pair() { leave(); }

  [[nodiscard]] worker& operator[](std::uint32_t rank) { return *workers_[rank]; }
  [[nodiscard]] owned_worker& owner(std::uint32_t rank) { return workers_[rank]; }
  /// All leave; how their runs ended.
  const std::vector<error>& leave() {
    for (owned_worker& w : workers_) {
      if (w) w.leave();
    }
    return wait();
  }
  const std::vector<error>& wait() {
    for (std::thread& t : loops_) {
      if (t.joinable()) t.join();
    }
    return ends_;
  }

 private:
  std::vector<owned_worker> workers_;
  std::vector<error> ends_;
  std::vector<std::thread> loops_;
};

}  // namespace weft::testing
