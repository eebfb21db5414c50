// SPDX-License-Identifier: BSL-1.0
// Room worker: the worker, its threads and its run. runtime.hpp makes its threads, joined.hpp is
// the one that a program owns. Includes every room but services.
//
// This file: connecting, and the end of a run. Bodies: impl/worker.hpp (making and destroying it),
// worker_connect.hpp (connections, signs of life), worker_run.hpp (a run), worker_cut.hpp (links
// that break between others than rank 0), worker_end.hpp (its end).
#pragma once

#include <weft/core/detail/context_owner.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/link/link.hpp>
#include <weft/engine/link/link_table.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/shutdown/ending.hpp>
#include <weft/engine/shutdown/shutdown.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::engine {

class worker final : public link_host, private weft::detail::context_owner {
 public:
  worker(worker_parts env, membership all, options settings);
  ~worker() override;

  /// Serves until every worker's main has returned or the run has failed; runs `main_` here.
  /// Returns success or what ended the run. To be spawned on `context`.
  asio::awaitable<error> run(std::function<asio::awaitable<void>(weft::worker&)> main_);

  /// What a handler of a user's threw out of the io_context: it ends the run as if main had. On the
  /// worker's thread.
  void handler_threw(std::exception_ptr what) noexcept;
  /// Until when the run, or what is left of it, must have ended; nothing before its end has begun.
  [[nodiscard]] std::optional<time_point> ends_by() const noexcept { return ends_by_; }
  /// The sentence about each plain function that still runs.
  [[nodiscard]] std::vector<std::string> still_running();

  /// No other thread enters the worker through its services' handles from then on, and none is in
  /// it. Before the contexts' work is dropped: those threads post to them.
  void detach() noexcept {
    for (const auto& s : services_) {
      if (s) s->detach();
    }
  }
  /// Destroys the coroutines that wait for replies: each holds its link, which holds it. Asio does
  /// so by the contexts, so their work is dropped after this.
  void drop_calls() noexcept {
    for (link& l : links_) {
      l.drop_calls();
      l.drop_waiting();
    }
  }
  void add_service(service_id slot, std::unique_ptr<service> s) {
    services_[static_cast<std::size_t>(slot)] = std::move(s);
  }

  void shutdown(const error& why) override;
  [[nodiscard]] link& link_to(std::uint32_t rank) noexcept override { return links_[rank]; }
  /// Those that somebody has asked for.
  [[nodiscard]] const link_table& links() const noexcept { return links_; }
  [[nodiscard]] asio::any_io_executor
  executor_in(intrusive_ptr<const call_scope> scope) const override {
    return scoped(context_, std::move(scope));
  }
  [[nodiscard]] bool on_thread() const noexcept override {
    return context_.get_executor().running_in_this_thread();
  }
  [[nodiscard]] loop_state loop() const noexcept override {
    if (loop_.over()) return loop_state::over;
    const bool runs = env_.users_loop ? loop_.bound() : loop_.somebody_inside();
    return runs ? loop_state::runs : loop_state::idle;
  }
  [[nodiscard]] bool needs_this_thread() const noexcept override {
    return nonblocking_thread::here() || loop_.is_this() || on_thread();
  }
  [[nodiscard]] std::uint64_t times_run() const noexcept override { return loop_.times(); }
  /// After the run, on a loop that goes on: what is still served is cancelled, and nothing waits
  /// for requests any more. Worker's thread.
  void stop_serving() noexcept {
    owners_.leave(*this);
    for (link& l : links_) l.cancel_all_served();
    requests().keep_idle(0);
  }
  /// Whether nothing but this refers to it any more, once its run is over: a loop of the user's may
  /// still have something to run or to drop. Worker's thread.
  [[nodiscard]] bool is_idle();
  [[nodiscard]] const asio::any_io_executor& compute_pool() const noexcept override {
    return env_.compute;
  }
  [[nodiscard]] worker_stats stats() const noexcept override;
  // ── link_host ──

  void connect(link& to) override;
  void connect_bulk(link& to) override;
  void control(link& from, incoming_message& m) override;
  void lost(link& peer, const error& reason) override;
  [[nodiscard]] bool only_leaves(std::uint32_t peer) const noexcept override {
    const auto& failure = run_.failure();
    return run_.over() && !(failure && failure->first == peer);
  }
  [[nodiscard]] bool ended_well() const noexcept override { return run_.over() && !run_.failure(); }
  [[nodiscard]] error loss_reason(std::uint32_t peer, const error& reason) const noexcept override;

 private:
  bool read_links() noexcept override {
    bool all = true;
    // What came before somebody was lost, from whomever, is heard before that.
    std::vector<std::pair<link*, error>> lost;
    for (link& l : links_) {
      error why;
      all = l.help(why) && all;
      if (why) or_die([&] { lost.emplace_back(&l, std::move(why)); });
    }
    for (auto& [l, why] : lost) l->mark_down(std::move(why));
    return all;
  }
  [[nodiscard]] std::uint64_t left_to_write() const noexcept override {
    std::uint64_t bytes = 0;
    for (const link& l : links_) bytes += l.left_to_write();
    return bytes;
  }
  [[nodiscard]] clock& time_here() const noexcept override { return time_; }
  void submit(intrusive_ptr<weft::detail::pool_job> job) override;
  void accept(connection_ptr connection, asio::io_context& io);
  asio::awaitable<void> welcome_in(connection_ptr connection, asio::io_context& io);
  asio::awaitable<void> connect_bulk_to(intrusive_ptr<link> to, asio::io_context& io);
  asio::awaitable<void> meet_for_bulk(intrusive_ptr<link> to, asio::io_context& io,
                                      connection_ptr& out);
  asio::awaitable<void> accept_handshake(connection_ptr connection, handshake& h, link*& out);
  asio::awaitable<void> connect_to(intrusive_ptr<link> to, asio::io_context& io);
  asio::awaitable<void> meet(intrusive_ptr<link> to, asio::io_context& io);
  void start_heartbeats();
  void send_heartbeats();
  void check_peers(std::size_t which);
  void count_posts(link& broken, std::string why);
  void tell_counts();
  [[nodiscard]] bool counts_first() const;
  void wait_for_other_end(link_ends which);
  [[nodiscard]] bool reached(link_ends which) const;
  void answer_count(std::uint64_t round);
  void judge_cut(const cut_link& cut);
  [[nodiscard]] std::string named(std::uint32_t who) const;
  [[nodiscard]] std::string lost_posts(std::uint32_t from, std::uint32_t to,
                                       const cut_link::way& way) const;
  void send_control(std::uint32_t rank, const shutdown_message& m);
  void relay_verdict();
  void act(const shutdown_protocol::actions& todo);
  [[nodiscard]] work_report report() const;
  void alarm(std::unique_ptr<timer>& by, time_point when, duration grace,
             std::function<void()> then);
  void apply_loss_policy();
  void start_join_deadline();
  void tell_of_waiting(duration after);
  void main_threw(std::exception_ptr what);
  void bound_the_end();
  void give_up_waiting(time_point due);
  void trim_buffers();
  [[nodiscard]] static bool sent(const link& l);
  [[nodiscard]] bool all_sent() const;
  asio::awaitable<error>
  serve_to_the_end(std::function<asio::awaitable<void>(weft::worker&)> main_);
  asio::awaitable<void> run_pending_handlers(time_point deadline);
  void close_all() noexcept;
  void forget_timers() noexcept;
  asio::awaitable<void> enter_state(const ending& end, const error& result, future<void>& running);
  [[nodiscard]] bool is_met(ending::condition c, const future<void>& main_) const;
  asio::awaitable<void> poll_interval(timer& moment);

  weft::detail::context_owners& owners_;  // of `context`; it is there as long as that
  std::unique_ptr<timer> trim_;
  link_table links_;
  shutdown_protocol run_;
  intrusive_ptr<event> ended_ = make_intrusive<event>();
  std::optional<time_point> ends_by_;
  std::optional<std::string> thrown_;  // by a handler
  std::unique_ptr<timer> greeted_;     // everybody, or who is missing is named
  std::unique_ptr<timer> again_;       // the next count
  std::unique_ptr<timer> over_;        // at ends_by_
  time_point asked_at_{};              // when the last round of counting began
  std::unique_ptr<timer> waits_;       // for the other mains: the next time to say so
  std::size_t next_io_ = 0;            // front thread

  // Links to others than rank 0 that broke, whose posts have not all ended.
  struct uncounted {
    std::uint32_t rank;
    std::string why;
    time_point until;
  };
  std::vector<uncounted> uncounted_;
  std::unique_ptr<timer> counts_;                     // the next look at them
  std::exception_ptr threw_for_;                      // by the main, meanwhile
  std::optional<std::uint64_t> round_;                // which rank 0 asked for, meanwhile
  std::map<link_ends, std::unique_ptr<timer>> cuts_;  // rank 0's: until it waits no longer
  /// Rank 0's: whose loss, and what did not run, though the run went on.
  std::optional<std::pair<std::uint32_t, std::string>> lost_posts_;

  // Signs of life: one timer on the front thread, one on each thread with links.
  duration heartbeat_interval_;
  std::unique_ptr<timer> beat_;
  std::vector<std::pair<asio::io_context*, std::unique_ptr<timer>>> judges_;
  std::atomic<std::uint64_t> loop_ticks_{0};  // of the worker's thread
  std::uint64_t loop_ticks_seen_ = 0;         // front thread
};

}  // namespace weft::engine

#include <weft/engine/worker/impl/worker.hpp>
#include <weft/engine/worker/impl/worker_cut.hpp>
#include <weft/engine/worker/impl/worker_end.hpp>
#include <weft/engine/worker/impl/worker_run.hpp>
