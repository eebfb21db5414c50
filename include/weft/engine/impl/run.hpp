// SPDX-License-Identifier: BSL-1.0
// Bodies of ../run.hpp.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/in_time.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/core/system_random.hpp>
#include <weft/engine/launch/descriptor_limit.hpp>
#include <weft/engine/launch/impl/launch.hpp>
#include <weft/engine/launch/launch.hpp>
#include <weft/engine/launch/placement.hpp>
#include <weft/engine/launch/run_report.hpp>
#include <weft/engine/launch/usable_cores.hpp>
#include <weft/engine/rendezvous/rendezvous.hpp>
#include <weft/engine/run.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/engine/services/services.hpp>
#include <weft/engine/worker/runtime.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/table.hpp>
#include <weft/rref/detail/broadcasts.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft::engine {

/// What every worker of `run` has.
[[nodiscard]] inline service_makers services_of_run() {
  return services<weft::rref_service, weft::autograd_service, weft::detail::broadcasts>();
}

/// Which worker this is: what the options say, else the launcher; none if nobody does. Throws
/// rpc_error invalid_argument.
[[nodiscard]] inline std::optional<placement> place_of(const options& o) {
  if (!o.place) return placement_from_environment();
  placement where = *o.place;
  if (where.rank >= where.size) {
    throw rpc_error(errc::invalid_argument,
                    "options.place says rank " + std::to_string(where.rank) + " of " +
                        std::to_string(where.size) + ": the first rank is 0");
  }
  // Without a place to meet there is but one host.
  if (!environment_text("MASTER_ADDR")) where.on_this_host = where.size;
  return where;
}

/// What the others will know of that worker, but for its incarnation and addresses.
[[nodiscard]] inline member introduce(std::uint32_t rank, std::uint32_t size, const options& o) {
  member self;
  self.name = o.name(rank, size, "worker" + std::to_string(rank));
  self.role = o.role(rank, size, "");
  self.window = o.window_bytes;
  return self;
}

/// What a launcher's word on the number of workers is to be said with, where the program wants
/// another one.
[[nodiscard]] inline std::string word_of_launcher(const placement& where, const options& o) {
  if (o.place || o.workers <= 1 || where.launcher.empty() || where.size == o.workers) return {};
  const std::string workers = std::to_string(o.workers);
  const bool by_number = where.launcher == "srun" || where.launcher == "mpirun";
  return "as " + (by_number ? where.launcher : "WORLD_SIZE") +
         " says, and that overrides options.workers = " + workers +
         (by_number ? ": `" + where.launcher + " -n " + workers + "` starts that many" : "");
}

/// The meeting of one.
[[nodiscard]] inline membership alone(member self, random_source& random) {
  membership all;
  all.token = random_id(random);
  all.members.push_back(std::move(self));
  return all;
}

/// Prints the one sentence of a failed run; returns the exit status.
[[nodiscard]] inline int conclude(const std::string& name, const error& result) {
  if (!result) return 0;
  say(name, result.message());
  return 1;
}

/// Why no worker of this program may run anything, or success.
[[nodiscard]] inline error unfit_program() {
  try {
    const function_table all;
    return {};
  } catch (const rpc_error& e) {
    return e.error();
  }
}

/// Why no worker may have these options, or success.
[[nodiscard]] inline error unfit_options(const options& o) {
  const auto refuse = [](const std::string& why) {
    return error(errc::invalid_argument, "options." + why);
  };
  for (const auto& [name, value] : {std::pair{"window_bytes", o.window_bytes},
                                    {"outbox_frames", std::uint64_t{o.outbox_frames}},
                                    {"outbox_bytes", o.outbox_bytes}}) {
    if (value > 0) continue;
    return refuse(std::string(name) +
                  " is 0, so nothing could be sent: give a larger number; for no limit, give the "
                  "largest number");
  }
  constexpr unsigned most_threads = 65536;
  for (const auto& [name, value] : {std::pair{"io_threads", o.io_threads.value_or(0)},
                                    {"compute_threads", o.compute_threads},
                                    {"intra_op_threads", o.intra_op_threads}}) {
    if (value <= most_threads) continue;
    return refuse(std::string(name) + " is " + std::to_string(value) + ": give at most " +
                  std::to_string(most_threads));
  }
  // An error with its causes takes up to 150 KB, what a worker counts for 1024 peers 21 KB, what
  // waits in a coroutine function at least 1 KiB of the last two.
  struct need {
    const char* name;
    std::uint64_t value;
    std::uint64_t least;
  };
  for (const need& n : {need{"payload", o.bounds.payload, 256 << 10},
                        need{"handshake", o.bounds.handshake, 4 << 10},
                        need{"link_tensor_bytes", o.bounds.link_tensor_bytes, 1 << 20},
                        need{"worker_tensor_bytes", o.bounds.worker_tensor_bytes, 1 << 20}}) {
    if (n.value >= n.least) continue;
    return refuse("bounds." + std::string(n.name) + " is " + std::to_string(n.value) +
                  ", and weft itself needs " + std::to_string(n.least) + " bytes");
  }
  for (const auto& [name, value] : {std::pair{"call_deadline", o.call_deadline},
                                    {"rendezvous_deadline", o.rendezvous_deadline},
                                    {"handshake_deadline", o.handshake_deadline},
                                    {"stall_limit", o.stall_limit},
                                    {"buffer_cache_idle", o.buffer_cache_idle}}) {
    if (value > duration{}) continue;
    return refuse(std::string(name) +
                  " leaves no time: give a longer one; for no limit, give a very long one");
  }
  return {};
}

/// What a call of `run` does about other processes; one with threads for workers is none of these.
enum class run_kind : std::uint8_t { alone, meets, starts };

/// Notes that call. Why it must not go on, or success: workers meet once, and the processes that
/// one starts would come to any call before it, and meet there.
[[nodiscard]] WEFT_PROCESS_WIDE inline error note_run(run_kind kind) {
  static std::atomic<bool> alone{false};
  static std::atomic<bool> several{false};
  const bool again = (kind == run_kind::alone ? alone : several).exchange(true);
  if (kind == run_kind::alone || !(again || (kind == run_kind::starts && alone))) return {};
  return error(errc::invalid_argument,
               "run was called a second time in this process: a program of several processes may "
               "call it only once; do everything in one run, or start the program again");
}

/// Ends the process while threads that do not end still use everything. What was printed is written
/// out, unless such a thread holds the stream.
[[noreturn]] inline void leave(int status) {
  static_cast<void>(ends_by(std::chrono::steady_clock::now() + std::chrono::seconds(1), [] {
    std::cout.flush();
    std::clog.flush();
    std::fflush(nullptr);
  }));
  std::_Exit(status);
}

/// Settles how many threads such a worker has, and what each of them tells libtorch first: it keeps
/// that number per thread, and a thread that has not been told takes every core.
inline void settle_threads(options& o, std::uint32_t on_this_host) {
  if (o.compute_threads == 0) o.compute_threads = cores_each(on_this_host);
  o.intra_op_threads = intra_op_threads(o.intra_op_threads, on_this_host, o.compute_threads);
  o.thread_starts = [n = static_cast<int>(o.intra_op_threads), then = std::move(o.thread_starts)] {
    at::set_num_threads(n);
    if (then) then();
  };
}

inline int run_here(const placement& where, make_transports* transports, worker_main main_,
                    options o) {
  settle_threads(o, where.on_this_host);
  member self = introduce(where.rank, where.size, o);
  if (const error again = note_run(where.size > 1 ? run_kind::meets : run_kind::alone)) {
    run_report::ends(self.name, again);
    return conclude(self.name, again);
  }
  run_report::begins();
  error result;
  try {
    const countdown left(o.rendezvous_deadline);
    const auto reached_at =
        where.one_host() ? std::vector<std::string>()
                         : apart<std::vector<std::string>>(
                               [=] { return own_addresses(where, left); }, left, stuck_look_up());
    need_descriptors(descriptors_of_worker(where.rank, where.size, o.io_threads) +
                         reached_at.size(),
                     "this worker");
    random_source random = system_random();
    self.incarnation = random_id(random);
    // Kept to the end of the run: rank 0 serves it.
    store_ptr store;
    membership all;
    runtime life(transport_set(transports(reached_at)), o, services_of_run());
    self.addresses = life.addresses();
    if (where.size > 1) {
      const meeting_request ask{where, self, left, random, run_id_of(o.run_id)};
      meeting met = apart<meeting>([ask] { return meet(ask); }, left, stuck_store());
      all = std::move(met.all);
      store = std::move(met.store);
    } else {
      all = alone(self, random);
    }
    all.why_so_many = word_of_launcher(where, o);
    life.join(std::move(all), random);
    result = life.run(std::move(main_), "the process exits without waiting for it");
    // Before this life ends, which may take long: functions may still run on its pool.
    run_report::ends(self.name, result);
    const int status = conclude(self.name, result);
    if (life.has_stuck_threads()) leave(status);
    return status;
  } catch (const rpc_error& e) {
    result = e.error();
  } catch (const std::exception& e) {
    result = error(errc::worker_failed, detail::what_of(e));
  }
  run_report::ends(self.name, result);
  return conclude(self.name, result);
}

/// Workers as threads of this process; what one that cannot be ended can reach is never destroyed.
struct thread_runs {
  std::mutex mutex;
  std::condition_variable changed;
  worker_main main_;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<runtime>> lives;
  std::vector<std::optional<int>> status;  // of those that have ended
  std::vector<bool> may_go;                // without whom the run goes on
  std::size_t ended = 0;
  bool over = false;  // for one without whom it does not

  void end(std::uint32_t rank, int with) {
    const std::lock_guard lock(mutex);
    status[rank] = with;
    ++ended;
    over = over || !may_go[rank] || with == 0;
    changed.notify_all();
  }
};

/// All workers as threads of this process.
[[nodiscard]] inline int run_in_threads(worker_main main_, options o) {
  check_workers(o.workers);
  const std::uint32_t size = std::max(1u, o.workers);
  const std::string workers = std::to_string(size) + (size == 1 ? " worker" : " workers");
  need_descriptors(size * descriptors_of_contexts(o.io_threads), "this process with " + workers);
  settle_threads(o, size);
  const auto hub = std::make_shared<inproc::hub>();
  random_source random = system_random();
  membership all;
  all.token = random_id(random);
  const auto runs = std::make_shared<thread_runs>();
  runs->main_ = std::move(main_);
  runs->status.resize(size);
  for (std::uint32_t r = 0; r < size; ++r) {
    runs->lives.push_back(
        std::make_unique<runtime>(transports_of(inproc(hub)), o, services_of_run()));
    member self = introduce(r, size, o);
    self.incarnation = random_id(random);
    self.addresses = runs->lives.back()->addresses();
    runs->names.push_back(self.name);
    runs->may_go.push_back(r != 0 && o.on_loss.goes_on_without(self.role));
    all.members.push_back(std::move(self));
  }
  for (all.rank = 0; all.rank < size; ++all.rank) runs->lives[all.rank]->join(all);
  std::vector<std::thread> threads(size);
  for (std::uint32_t r = 0; r < size; ++r) {
    try {
      threads[r] = std::thread([runs, r] {
        int status = 1;
        try {
          status = conclude(runs->names[r], runs->lives[r]->run(runs->main_));
        } catch (const std::exception& e) {
          status = conclude(runs->names[r], error(errc::worker_failed, detail::what_of(e)));
          runs->lives[r].reset();  // its links: the others would not miss it
        }
        runs->end(r, status);
      });
    } catch (const std::exception& e) {  // the others will miss it, and say so
      runs->end(r, conclude(runs->names[r], error(errc::resource_exhausted, detail::what_of(e))));
    }
  }
  // Once the first has ended without whom the run does not go on, or well, the others do so by the
  // deadline; one that cannot, because its own thread does not return from a handler, is left
  // behind.
  std::unique_lock lock(runs->mutex);
  runs->changed.wait(lock, [&] { return runs->over || runs->ended == size; });
  const time_point patience =
      later(later(std::chrono::steady_clock::now(), o.shutdown_deadline), std::chrono::seconds(10));
  runs->changed.wait_until(lock, patience, [&] { return runs->ended == size; });
  const std::vector<std::optional<int>> status = runs->status;
  lock.unlock();
  int worst = 0;
  for (std::uint32_t r = 0; r < size; ++r) {
    if (status[r]) {
      if (threads[r].joinable()) threads[r].join();
      if (!runs->may_go[r]) worst = std::max(worst, *status[r]);
      continue;
    }
    threads[r].detach();
    const int status_of_stuck =
        conclude(runs->names[r],
                 error(errc::worker_failed,
                       "its thread does not return from the code that it runs; it "
                       "is left behind, and weft frees nothing of its own that it can reach"));
    if (!runs->may_go[r]) worst = std::max(worst, status_of_stuck);
  }
  return worst;
}

inline namespace WEFT_VERSION_NAME {

WEFT_DECL int run(make_transports* transports, worker_main main_, options o) {
  if (const error unfit = unfit_program()) return conclude("run", unfit);
  if (const error unfit = unfit_options(o)) return conclude("run", unfit);
  std::optional<placement> where;
  try {
    where = place_of(o);
  } catch (const rpc_error& e) {
    return conclude("run", e.error());
  }
  if (!where && o.workers > 1) {
    if (const error again = note_run(run_kind::starts)) return conclude("run", again);
    try {
      return launch_local(o);
    } catch (const std::exception& e) {
      say("", detail::what_of(e));
      return 1;
    }
  }
  return run_here(where.value_or(placement{}), transports, std::move(main_), std::move(o));
}

WEFT_DECL int run_threads(worker_main main_, options o) {
  if (const error unfit = unfit_program()) return conclude("run", unfit);
  if (const error unfit = unfit_options(o)) return conclude("run", unfit);
  try {
    return run_in_threads(std::move(main_), std::move(o));
  } catch (const rpc_error& e) {
    return conclude("run", e.error());
  } catch (const std::exception& e) {
    return conclude("run", error(errc::worker_failed, detail::what_of(e)));
  }
}

}  // namespace WEFT_VERSION_NAME
}  // namespace weft::engine
