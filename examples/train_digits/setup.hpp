// SPDX-License-Identifier: BSL-1.0
#pragma once
// Around the training: names of the workers, threads, and what an epoch cost.

#include "local.hpp"
#include "records.hpp"
#include "settings.hpp"
#include <weft/weft.hpp>

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace digits {

// Rank 0 is the server, whose bar stays on the terminal; the others are trainer1, trainer2, …,
// loader1, … A run goes on without a loader.
inline weft::options worker_options(const settings& how) {
  if (how.threads > 0) {
    ::setenv("OMP_NUM_THREADS", std::to_string(how.threads).c_str(), 1);
    at::set_num_threads(how.threads);
  }
  weft::options o;
  o.workers = static_cast<std::uint32_t>(how.workers());
  const auto last_trainer = static_cast<std::uint32_t>(how.trainers);
  const auto role = [last_trainer](std::uint32_t rank, std::uint32_t) -> std::string {
    return rank == 0 ? "server" : rank <= last_trainer ? "trainer" : "loader";
  };
  o.role = role;
  o.name = [last_trainer, role](std::uint32_t rank, std::uint32_t size) {
    if (rank == 0) return role(rank, size);
    return role(rank, size) + std::to_string(rank <= last_trainer ? rank : rank - last_trainer);
  };
  o.on_loss = weft::loss_policy::go_on_without({"loader"});
  o.foreground = 0;
  return o;
}

// Time, bytes and calls of this worker, from its making to `stop`.
class stopwatch {
 public:
  explicit stopwatch(const weft::worker& me) : me_(me) {}
  void stop(epoch_part& into) const {
    const auto now = me_.stats();
    into.seconds = std::chrono::duration<double>(clock::now() - began_).count();
    into.bytes = now.bytes_sent + now.bytes_received - before_.bytes_sent - before_.bytes_received;
    into.calls = now.calls - before_.calls;
  }

 private:
  using clock = std::chrono::steady_clock;
  const weft::worker& me_;
  weft::worker_stats before_ = me_.stats();
  clock::time_point began_ = clock::now();
};

// --local; the exit status.
inline int run_local(const settings& how) {
  try {
    train_local(how);
    return EXIT_SUCCESS;
  } catch (const std::exception& e) {
    std::cerr << "train_digits: " << e.what() << '\n';
    return EXIT_FAILURE;
  }
}

}  // namespace digits
