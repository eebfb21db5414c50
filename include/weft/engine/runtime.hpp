// SPDX-License-Identifier: BSL-1.0
// A worker with everything under it: threads, io_contexts, clock, network, services.
#pragma once

#include <weft/core/detail/sure_post.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/engine/compute_pool.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/in_time.hpp>
#include <weft/engine/timer_alarm.hpp>
#include <weft/engine/transport_set.hpp>
#include <weft/engine/worker.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::engine {

/// An io_context whose pending work can be dropped while what that work refers to still lives.
class droppable_context : public asio::io_context {
 public:
  using asio::io_context::io_context;
  void drop_work() { shutdown(); }
};

/// Makes one service of a worker.
struct service_maker {
  service_id slot;
  std::unique_ptr<service> (*make)(engine::worker& me);
};
using service_makers = std::vector<service_maker>;

/// Of one worker. Several may live in one process, each used by one thread.
class runtime {
 public:
  /// Opens the listening ends. `transports` decides what can be reached.
  runtime(transport_set transports, options settings, service_makers services)
      : parts_(std::make_unique<parts>(std::move(transports), std::move(settings))),
        services_(std::move(services)) {}
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime() {
    if (left_behind_) leave_behind(std::move(parts_));
  }

  /// Where this worker listens, for the rendezvous.
  [[nodiscard]] const std::vector<member::address>& addresses() const noexcept {
    return parts_->addresses;
  }

  /// Once, after the rendezvous.
  weft::worker& join(membership all, random_source random = system_random()) {
    parts& p = *parts_;
    std::vector<asio::io_context*> io;
    for (const auto& c : p.io) io.push_back(c.get());
    // Without I/O threads the front is a guard: it accepts, greets and gives signs of life.
    asio::io_context& front = p.front();
    using thread_is = timer_alarm::thread_is;
    const bool guarded = p.settings.io_threads == 0;
    if (guarded) io.clear();
    p.alarm = std::make_unique<timer_alarm>(
        front, guarded ? thread_is::a_guard : thread_is::for_links, [&p] { p.me->flush_late(); });
    p.me = std::make_unique<engine::worker>(worker_parts{p.context, p.clock, std::move(random),
                                                         p.transports, std::move(io), &front,
                                                         p.alarm.get(), p.pool->get_executor()},
                                            std::move(all), p.settings);
    for (const service_maker& s : services_) p.me->add_service(s.slot, s.make(*p.me));
    return *p.me;
  }

  /// Runs `main_` and serves until the run ends, on this thread. Returns what ended it. Requires
  /// `join`. Once it returned no thread of this worker runs any more, unless `left_behind` says so.
  /// `stuck` says what becomes of what does not end.
  error run(std::function<asio::awaitable<void>(weft::worker&)> main_,
            const char* stuck = "it is left behind with all that it can reach") {
    parts& p = *parts_;
    p.start_threads();
    if (p.settings.thread_starts) p.settings.thread_starts();
    error result;
    auto body = [](engine::worker& me, std::function<asio::awaitable<void>(weft::worker&)> f,
                   error& out, asio::io_context& c) -> asio::awaitable<void> {
      out = co_await me.run(std::move(f));
      c.stop();
    };
    std::exception_ptr failure;
    asio::co_spawn(p.context, body(*p.me, std::move(main_), result, p.context),
                   [&](std::exception_ptr e) {
                     failure = e;
                     if (e) p.context.stop();
                   });
    {
      const auto guard = asio::make_work_guard(p.context);
      p.run_context();
    }
    const time_point now = p.clock.now();
    const time_point until =
        std::max(p.me->ends_by().value_or(later(now, p.settings.shutdown_deadline)),
                 now + std::chrono::milliseconds(100));
    if (!ends_by(until, [&p] { p.stop_threads(); })) {
      left_behind_ = true;
      result = blame_what_runs(result, stuck);
    }
    if (failure) std::rethrow_exception(failure);
    return result;
  }

  /// Whether a thread of this worker did not end by the shutdown deadline, as no thread can be made
  /// to. It may go on for ever, so nothing that it can reach is ever destroyed; if the process is
  /// to end, then by std::_Exit.
  [[nodiscard]] bool left_behind() const noexcept { return left_behind_; }

  [[nodiscard]] weft::worker& worker() const noexcept { return *parts_->me; }
  [[nodiscard]] const options& settings() const noexcept { return parts_->settings; }

 private:
  struct parts {
    parts(transport_set n, options o)
        : settings(std::move(o)), transports(std::move(n)), context(1) {
      for (unsigned i = 0; i < std::max(1u, settings.io_threads); ++i) {
        io.push_back(std::make_unique<droppable_context>(1));
      }
      pool = std::make_unique<compute_pool>(std::max(1u, settings.compute_threads),
                                            settings.thread_starts);
      addresses = transports.listen(front());
    }
    parts(const parts&) = delete;
    parts& operator=(const parts&) = delete;
    ~parts() {
      // Other threads post to the contexts until the pool has stopped and the worker is detached.
      // Coroutines that still wait refer to the worker, whose timers refer to the contexts, as do
      // the transports' listeners: drop the work then, after that those, then the contexts.
      stop_threads();
      if (me) {
        me->detach();
        me->drop_calls();
      }
      context.drop_work();
      for (auto& c : io) c->drop_work();
      me.reset();
      alarm.reset();
      transports = transport_set();
    }
    /// Where connections begin; user code never runs there for long.
    [[nodiscard]] asio::io_context& front() const noexcept { return *io.front(); }

    void start_threads() {
      for (auto& c : io) {
        guards.emplace_back(asio::make_work_guard(*c));
        threads.emplace_back([this, &c = *c] {
          if (settings.thread_starts) settings.thread_starts();
          for (bool over = false; !over;) {
            try {
              c.run();
              over = true;
            } catch (...) {
              // The first one ends the run.
              if (threw.exchange(true)) continue;
              tell_of_it(context,
                         [this, what = std::current_exception()] { me->handler_threw(what); });
            }
          }
        });
      }
    }
    /// Until it is stopped, whatever a handler throws: that ends the run, which takes its time.
    void run_context() {
      for (;;) {
        try {
          context.run();
          return;
        } catch (...) {
          me->handler_threw(std::current_exception());
        }
      }
    }
    /// Waits without a limit for what runs on them.
    void stop_threads() {
      guards.clear();
      for (auto& c : io) c->stop();
      for (std::thread& t : threads) t.join();
      threads.clear();
      pool->stop();
      pool->join();
    }

    options settings;
    real_clock clock;
    transport_set transports;
    droppable_context context;
    std::vector<std::unique_ptr<droppable_context>> io;  // at least one
    std::unique_ptr<timer_alarm> alarm;
    std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
    std::vector<std::thread> threads;
    std::vector<member::address> addresses;
    std::atomic<bool> threw{false};  // something on one of `threads`
    sure_post tell_of_it;
    std::unique_ptr<compute_pool> pool;
    std::unique_ptr<engine::worker> me;
  };

  [[nodiscard]] error blame_what_runs(const error& result, const char* stuck) const {
    std::string why;
    for (const std::string& one : parts_->me->still_running()) why += one + "; ";
    if (why.empty()) {
      why = "something still runs on a thread of " + parts_->me->name() +
            " at the shutdown deadline; ";
    }
    why += std::string("no thread can be ended, so ") + stuck;
    if (!result) return error(errc::worker_failed, why);
    return result.with([&](error_detail& d) { d.text += "; " + why; });
  }

  std::unique_ptr<parts> parts_;
  service_makers services_;
  bool left_behind_ = false;
};

}  // namespace weft::engine
