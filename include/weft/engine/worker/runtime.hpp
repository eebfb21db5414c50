// SPDX-License-Identifier: BSL-1.0
// A worker with everything under it: threads, io_contexts, clock, network, services.
#pragma once

#include <weft/core/detail/compute_pool.hpp>
#include <weft/core/detail/in_time.hpp>
#include <weft/core/detail/loop_thread.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/core/system_random.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/helper/timer_alarm.hpp>
#include <weft/engine/launch/run_report.hpp>
#include <weft/engine/link/transport_set.hpp>
#include <weft/engine/worker/dismantle.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/rpc/detail/process_workers.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::engine {

/// Makes one service of a worker.
struct service_maker {
  service_id slot;
  std::unique_ptr<service> (*make)(engine::worker& me);
};
using service_makers = std::vector<service_maker>;

/// Of one worker. Several may live in one process. Its loop is the thread that calls `run` or
/// `run_for`, or an io_context of the user's, which outlives this; one thread in either case.
class runtime {
 public:
  /// Opens the listening ends. `transports` decides what can be reached. On a loop of the user's no
  /// link lives, so such a worker has at least one I/O thread.
  runtime(transport_set transports, options settings, service_makers services,
          asio::io_context* loop = nullptr)
      : parts_(std::make_unique<parts>(std::move(transports), std::move(settings), loop)),
        services_(std::move(services)) {}
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  /// Ends whatever still runs, within the shutdown deadline; others see a lost worker. No thread is
  /// in `run` then; on a loop of the user's, that has been destroyed or has dropped its work.
  ~runtime() {
    end_threads("it is left behind, and weft frees nothing of its own that it can reach");
    if (has_stuck_threads_) leak(std::move(parts_));
  }

  /// Where this worker listens, for the rendezvous.
  [[nodiscard]] const std::vector<member::address>& addresses() const noexcept {
    return parts_->addresses;
  }

  /// Once, after the rendezvous.
  engine::worker& join(membership all, random_source random = system_random()) {
    parts& p = *parts_;
    std::vector<asio::io_context*> io;
    for (const auto& c : p.io) io.push_back(c.get());
    // Without I/O threads the front accepts, greets and gives signs of life.
    asio::io_context& front = p.front();
    const std::optional<unsigned> io_threads = p.settings.io_threads;
    if (io_threads.value_or(0) == 0) io.clear();
    p.alarm = std::make_unique<timer_alarm>(front, [&p] { p.me->helper().ticked(); });
    if (!io_threads) {
      p.arrivals = std::make_unique<weft::arrivals>(front, arrival_ends::of::sockets_too,
                                                    [&p] { p.me->helper().arrived(); });
    }
    p.me = std::make_unique<engine::worker>(
        worker_parts{p.context, p.clock, std::move(random), p.transports, std::move(io), &front,
                     p.alarm.get(), p.arrivals.get(), p.pool->get_executor(), !p.own,
                     !run_report::listens()},
        std::move(all), p.settings);
    for (const service_maker& s : services_) p.me->add_service(s.slot, s.make(*p.me));
    return *p.me;
  }

  /// Begins to serve, and `main_`, as soon as the loop runs. `ended` is called on the loop when the
  /// run has, which also stops a loop of its own; it throws nothing. Once, after `join`.
  void start(std::function<asio::awaitable<void>(weft::worker&)> main_,
             std::function<void()> ended = {}) {
    parts& p = *parts_;
    p.start_threads();
    auto body = [](parts& all, std::function<asio::awaitable<void>(weft::worker&)> f,
                   std::function<void()> then) -> asio::awaitable<void> {
      try {
        if (!all.own) {
          all.me->loop_is_run_by().bind(all.me->name());
          f = prepared_by(all.settings.thread_starts, std::move(f));
        }
        all.result = co_await all.me->run(std::move(f));
      } catch (const std::bad_alloc&) {
        out_of_memory();
      } catch (...) {  // a second thread runs the loop
        all.failure = std::current_exception();
      }
      all.me->loop_is_run_by().end();
      if (!all.own) all.me->stop_serving();
      all.keeps_loop.reset();
      if (all.own) all.own->stop();
      if (then) then();
    };
    p.keeps_loop.emplace(p.context.get_executor());
    spawn_or_die(p.context, body(p, std::move(main_), std::move(ended)));
  }

  /// Runs the loop, which is the worker's own, on this thread until the run has ended. Throws
  /// rpc_error invalid_argument if another thread has run it.
  void run_loop() {
    parts_->serve([this] { parts_->own->run(); });
  }
  /// The same for that long at most; zero: what is ready. Returns whether the run has ended.
  bool run_loop_for(duration most) {
    parts_->serve([this, until = later(parts_->clock.now(), most), most] {
      most > duration::zero() ? parts_->own->run_until(until) : parts_->own->poll();
    });
    return over();
  }
  [[nodiscard]] bool over() const noexcept { return parts_->me->loop_is_run_by().over(); }

  /// Waits for this worker's threads, no longer than the shutdown deadline allows: once it returned
  /// none runs any more, unless `has_stuck_threads` says so. `stuck` says what becomes of what
  /// does not end. Any thread but these, once.
  void end_threads(const char* stuck) noexcept {
    parts& p = *parts_;
    if (std::exchange(p.threads_ended, true)) return;
    const time_point now = p.clock.now();
    const auto bound = p.me ? p.me->ends_by() : std::nullopt;
    const time_point until = std::max(bound.value_or(later(now, p.settings.shutdown_deadline)),
                                      now + std::chrono::milliseconds(100));
    if (ends_by(until, [&p] { p.stop_threads(); })) return;
    has_stuck_threads_ = true;
    if (p.me) process_workers::remove(*p.me);  // it is nobody's any more
    or_die([&] { p.result = blame_what_runs(p.result.value_or(error()), stuck); });
  }
  /// Nothing of this worker's enters a loop of the user's from then on: its threads have ended, and
  /// what waits without being an operation of the loop's, or was left by those threads, is
  /// destroyed there. On the loop, or once nobody runs it, before it destroys what it has.
  void let_go_of_loop() {
    end_threads("it is left behind, and weft frees nothing of its own that it can reach except its "
                "io_context");
    parts_->me->detach();
    if (has_stuck_threads_) return;
    parts_->me->requests().keep_idle(0);
    parts_->me->drop_calls();
    parts_->pool->drop_work();
    for (auto& c : parts_->io) c->drop_work();
  }
  /// Nobody runs what waits for the pool once the threads have ended. On a loop of the user's.
  void drop_pool_work() {
    if (!has_stuck_threads_) parts_->pool->drop_work();
  }
  /// Whether nothing on a loop of the user's refers to the worker any more. After that, on it.
  [[nodiscard]] bool is_idle() { return !has_stuck_threads_ && parts_->me->is_idle(); }
  /// What ended the run; rethrows what no run ends by. Once it is over, and the threads ended.
  [[nodiscard]] error result() const {
    if (parts_->failure) std::rethrow_exception(parts_->failure);
    return parts_->result.value_or(error());
  }

  /// All of it: runs `main_` and serves until the run ends, on this thread. Returns what ended it.
  error run(std::function<asio::awaitable<void>(weft::worker&)> main_,
            const char* stuck =
                "it is left behind, and weft frees nothing of its own that it can reach") {
    start(std::move(main_));
    run_loop();
    end_threads(stuck);
    return result();
  }

  /// Whether a thread of this worker did not end by the shutdown deadline, as no thread can be made
  /// to. It may go on for ever, so nothing that it can reach is ever destroyed; if the process is
  /// to end, then by std::_Exit.
  [[nodiscard]] bool has_stuck_threads() const noexcept { return has_stuck_threads_; }

  [[nodiscard]] engine::worker& worker() const noexcept { return *parts_->me; }
  [[nodiscard]] const options& settings() const noexcept { return parts_->settings; }

 private:
  using main_function = std::function<asio::awaitable<void>(weft::worker&)>;
  /// `f`, if `starts` throws nothing; else a main that throws it, so that the others hear of it.
  [[nodiscard]] static main_function prepared_by(const std::function<void()>& starts,
                                                 main_function f) {
    try {
      if (starts) starts();
      return f;
    } catch (...) {
      return [what = std::current_exception()](weft::worker&) -> asio::awaitable<void> {
        std::rethrow_exception(what);
        co_return;
      };
    }
  }

  struct parts {
    parts(transport_set n, options o, asio::io_context* loop)
        : settings(std::move(o)),
          transports(std::move(n)),
          own(loop ? nullptr : std::make_unique<droppable_context>(1)),
          context(loop ? *loop : *own) {
      if (loop) settings.io_threads = std::max(1u, settings.io_threads.value_or(1));
      for (unsigned i = 0; i < std::max(1u, settings.io_threads.value_or(1)); ++i) {
        io.push_back(std::make_unique<droppable_context>(1));
      }
      pool = std::make_unique<compute_pool>(std::max(1u, settings.compute_threads),
                                            settings.thread_starts);
      addresses = transports.listen(front());
    }
    parts(const parts&) = delete;
    parts& operator=(const parts&) = delete;
    ~parts() {
      stop_threads();
      keeps_loop.reset();
      dismantle(me, *pool, own.get(), io, alarm, arrivals, transports);
    }
    /// Where connections begin; user code never runs there for long.
    [[nodiscard]] asio::io_context& front() const noexcept { return *io.front(); }

    void start_threads() {
      for (auto& c : io) {
        guards.emplace_back(asio::make_work_guard(*c));
        threads.emplace_back([this, &c = *c] {
          const nonblocking_thread mark;
          if (settings.thread_starts) settings.thread_starts();
          for (bool ended = false; !ended;) {
            try {
              c.run();
              ended = true;
            } catch (const std::bad_alloc&) {
              out_of_memory();
            } catch (...) {  // of a user's transport; the first one ends the run
              if (threw.exchange(true)) continue;
              post_or_die(context,
                          [this, what = std::current_exception()] { me->handler_threw(what); });
            }
          }
        });
      }
    }
    /// Until it is stopped, whatever a handler throws: that ends the run, which takes its time.
    template <class Loop>
    void serve(Loop&& loop) {
      const loop_thread::inside now(me->loop_is_run_by(), me->name());
      if (!std::exchange(prepared, true) && settings.thread_starts) settings.thread_starts();
      for (;;) {
        try {
          return loop();
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
    std::unique_ptr<droppable_context> own;  // null: the loop is the user's
    asio::io_context& context;
    std::vector<std::unique_ptr<droppable_context>> io;  // at least one
    std::unique_ptr<timer_alarm> alarm;
    std::unique_ptr<weft::arrivals> arrivals;  // where the front helps; null: it does not
    std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
    std::vector<std::thread> threads;
    std::vector<member::address> addresses;
    std::atomic<bool> threw{false};  // something on one of `threads`
    std::unique_ptr<compute_pool> pool;
    std::unique_ptr<engine::worker> me;
    // Of the run:
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> keeps_loop;
    std::optional<error> result;
    std::exception_ptr failure;
    bool threads_ended = false;
    bool prepared = false;  // the loop's thread
  };

  [[nodiscard]] error blame_what_runs(const error& result, const char* stuck) const {
    std::string why;
    const engine::worker& me = *parts_->me;
    for (const std::string& one : parts_->me->still_running()) why += one + "; ";
    if (why.empty()) {
      why = "something still runs on a thread of " + me.name() + " at the shutdown deadline; ";
    }
    why += std::string("no thread can be ended, so ") + stuck;
    if (!result) return error(errc::worker_failed, why);
    return result.with([&](error_detail& d) { d.text += "; " + why; });
  }

  std::unique_ptr<parts> parts_;
  service_makers services_;
  bool has_stuck_threads_ = false;
};

}  // namespace weft::engine
