// SPDX-License-Identifier: BSL-1.0
// The worker itself: connecting, serving, and the end of a run. A template only so that its bodies
// are compiled where a worker is made and nowhere else. Bodies: impl/live_worker_connect.hpp and
// impl/live_worker.hpp.
#pragma once

#include <weft/core/detail/sure_post.hpp>
#include <weft/memory/pool.hpp>
#include <weft/rpc/connection.hpp>
#include <weft/rpc/live_link.hpp>
#include <weft/rpc/run_state.hpp>
#include <weft/rpc/runner.hpp>
#include <weft/rpc/table.hpp>
#include <weft/rpc/worker.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::detail {

template <class T>
class live_worker final : public worker {
 public:
  live_worker(environment env, membership all, options settings);
  ~live_worker() override;

  /// Serves until every worker's main has returned or the run has failed; runs `main_` here.
  /// Returns success or what ended the run. To be spawned on `context`.
  asio::awaitable<error> run(std::function<asio::awaitable<void>(worker&)> main_);

  /// What a handler of a user's threw out of the io_context: it ends the run as if main had. On the
  /// worker's thread.
  void handler_threw(const std::exception_ptr& what);
  /// Until when the run, or what is left of it, must have ended; nothing before its end has begun.
  [[nodiscard]] std::optional<time_point> ends_by() const noexcept { return ends_by_; }
  /// The sentence about each plain function that still runs.
  [[nodiscard]] std::vector<std::string> still_running();

  /// Ends the compute pool; its queued functions are dropped. Once, before the links go.
  void stop_pool() {
    pool_.stop();
    pool_.join();
  }
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
    for (const ref<live_link<T>>& l : links_) {
      l->drop_calls();
      l->drop_waiting();
    }
  }
  void add_service(service_slot slot, std::unique_ptr<service> s) {
    services_[static_cast<std::size_t>(slot)] = std::move(s);
  }

  void shutdown(const error& why) override;
  [[nodiscard]] link& to(std::uint32_t rank) noexcept override { return *links_[rank]; }
  /// The alarm rang, on the front thread.
  void flush_late() {
    if (late_.ring()) batch_ends(*this);
  }

  // ── for links; any thread unless marked ──

  [[nodiscard]] const function_table& functions() const noexcept { return functions_; }
  [[nodiscard]] weft::pool& buffers() noexcept { return buffers_; }
  /// What peers make this worker hold, against limits::worker_tensor_bytes.
  [[nodiscard]] const ref<memory_budget>& memory() const noexcept { return memory_; }
  /// For hashes of what peers choose.
  [[nodiscard]] std::uint64_t salt() const noexcept { return salt_; }
  [[nodiscard]] bool on_context(const asio::io_context& io) const noexcept {
    return &io == &env_.context;
  }
  /// Links live on the worker's thread.
  [[nodiscard]] bool links_on_context() const noexcept { return env_.io.empty(); }
  [[nodiscard]] asio::io_context& front() const noexcept {
    return env_.front ? *env_.front : env_.context;
  }
  [[nodiscard]] late_flush& late() noexcept { return late_; }
  /// The running turn of the loop, which ends behind what is ready now. Worker's thread.
  std::uint64_t turn() noexcept;
  void hold_turn() noexcept override {
    turn();
    turn_held_ = true;
  }
  /// To the worker's thread, behind what was handed over before; wakes it once a batch.
  void hand_over(ref<live_link<T>> from, frame f, error lacking);
  void hand_over(ref<invocation> call);
  [[nodiscard]] ref<coroutine_runner<T>> runner();  // worker's thread
  /// Opens a connection; ends in `install` or `cannot_connect` of the link.
  void connect(live_link<T>& to);
  void control(live_link<T>& from, incoming_message& m);  // worker's thread
  void lost(live_link<T>& peer, const error& reason);     // worker's thread
  /// Whose link ends once the run is over here is no loss, but for the one that ended the run.
  /// Worker's thread.
  [[nodiscard]] bool only_leaves(std::uint32_t peer) const noexcept {
    const auto& failure = run_.failure();
    return run_.over() && !(failure && failure->first == peer);
  }
  /// What who waits for `peer` is told, which only leaves. Worker's thread.
  [[nodiscard]] error said_of(std::uint32_t peer, const error& reason) const noexcept;
  void count_sent(std::uint64_t frames, std::uint64_t bytes) noexcept {
    frames_sent.fetch_add(frames, std::memory_order_relaxed);
    bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_received(std::uint64_t frames, std::uint64_t bytes) noexcept {
    frames_received.fetch_add(frames, std::memory_order_relaxed);
    bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  struct handed {
    ref<live_link<T>> from;
    frame f;
    error lacking;
    ref<invocation> call;
  };
  void end_turn() noexcept;
  void put_in(handed&& what);
  void drain();
  void accept(connection_ptr connection, asio::io_context& io);
  asio::awaitable<void> welcome_in(connection_ptr connection, asio::io_context& io);
  asio::awaitable<void> greet(connection_ptr connection, handshake& h, live_link<T>*& out);
  asio::awaitable<void> dial(ref<live_link<T>> to, asio::io_context& io);
  asio::awaitable<void> meet(ref<live_link<T>> to, asio::io_context& io);
  void begin_life();
  void beat_again();
  void judge_again(std::size_t which);
  void send_control(std::uint32_t rank, const run_message& m);
  void pass_on_word() noexcept;
  void act(const run_state::actions& todo);
  [[nodiscard]] work_report report() const;
  void alarm(std::unique_ptr<timer>& by, time_point when, duration grace,
             std::function<void()> then);
  void expect_everybody();
  void tell_of_waiting(duration after) noexcept;
  void main_threw(std::exception_ptr what) noexcept;
  void bound_the_end();
  void give_up_waiting();
  void trim_buffers();
  [[nodiscard]] static bool sent(const live_link<T>& l);
  [[nodiscard]] bool all_sent() const;
  asio::awaitable<void> hand_words_on(time_point deadline);
  asio::awaitable<void> until(time_point deadline, std::function<bool()> done);

  function_table functions_;
  weft::pool buffers_;
  ref<memory_budget> memory_;
  const std::uint64_t salt_;
  late_flush late_;
  std::unique_ptr<timer> trim_;
  std::vector<ref<live_link<T>>> links_;
  run_state run_;
  ref<event> ended_ = make_ref<event>();
  std::optional<time_point> ends_by_;
  std::optional<std::string> thrown_;  // by a handler
  std::unique_ptr<timer> greeted_;     // everybody, or who is missing is named
  std::unique_ptr<timer> again_;       // the next count
  std::unique_ptr<timer> over_;        // at ends_by_
  std::unique_ptr<timer> waits_;       // for the other mains: the next time to say so
  std::size_t next_io_ = 0;            // front thread

  // Signs of life: one timer on the front thread, one on each thread with links.
  duration pulse_;
  std::unique_ptr<timer> beat_;
  std::vector<std::pair<asio::io_context*, std::unique_ptr<timer>>> judges_;
  std::atomic<std::uint64_t> looks_{0};  // of the worker's thread
  std::uint64_t looks_seen_ = 0;         // front thread

  // The worker's thread:
  std::uint64_t turn_ = 0;
  bool turn_grew_ = false;  // since its end was looked for
  bool turn_held_ = false;
  int turn_rounds_ = 0;
  static constexpr std::size_t most_idle_runners = 256;
  std::vector<ref<coroutine_runner<T>>> idle_runners_;  // coroutines that wait for requests

  std::mutex inbox_mutex_;
  std::vector<handed> inbox_;
  std::vector<handed> draining_;  // worker's thread
  sure_post wake_inbox_;
  sure_post end_turn_;
  sure_post main_post_;
};

}  // namespace weft::detail

#include <weft/rpc/impl/live_worker.hpp>
#include <weft/rpc/impl/live_worker_run.hpp>
