// SPDX-License-Identifier: BSL-1.0
// The link itself: outbox, writing, reading. A template only so that its bodies are compiled where
// a worker is made and nowhere else. Bodies: impl/live_link.hpp (sending), impl/live_link_state.hpp
// (connections, loss, life), live_link_read.hpp (reading), live_link_serve.hpp (requests) and
// live_link_wait.hpp (those whose object is being made).
#pragma once

#include <weft/core/detail/sure_post.hpp>
#include <weft/core/event.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/connection.hpp>
#include <weft/rpc/detail/served_calls.hpp>
#include <weft/rpc/detail/waiting_line.hpp>
#include <weft/rpc/invocation.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/memory_budget.hpp>
#include <weft/rpc/signs_of_life.hpp>
#include <weft/rpc/waiting_calls.hpp>
#include <weft/rpc/window.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/transport/frame_sink.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::detail {

template <class T = void>
class live_worker;

template <class T = void>
class live_link final : public link, public frame_sink {
 public:
  live_link(live_worker<T>& me, std::uint32_t rank, asio::io_context& io);
  ~live_link() override;

  [[nodiscard]] state now() const override;
  [[nodiscard]] std::string transport() const override;
  [[nodiscard]] error reason() const override;
  expected<std::uint64_t> queue(message&& m, const frame_header& header) noexcept override;
  bool append(frame&& f) override;
  void flush() noexcept override;
  void flush_early() noexcept override;
  void flush_with_turn() noexcept override;
  void flush_late() noexcept override;
  [[nodiscard]] std::size_t waiting() const override;
  [[nodiscard]] bool roomy() noexcept override;
  asio::awaitable<expected<void>> room(time_point deadline) override;
  [[nodiscard]] bool crowded() const noexcept override { return !line_.empty(); }
  void lose(error reason) noexcept override;

  // ── connections, any thread ──

  /// Connects now if it never did, and goes on trying.
  void open();
  /// Where it lives, or will.
  [[nodiscard]] asio::io_context& io() const;
  /// Whether a connection that the peer opened is taken. `yes`: it will be installed, no other one
  /// is opened or taken meanwhile.
  enum class welcome : std::uint8_t { yes, another_stays, down };
  [[nodiscard]] welcome promise();
  /// The promised connection broke before it was installed; connects anew if anything waits.
  void break_promise();
  struct arrived_frame {
    frame f;
    std::uint64_t bytes = 0;  // on the wire
    error lacking;            // set: why there is only a part of it
  };
  /// What goes on with the rest of a frame for which memory lacked; or why the link cannot.
  [[nodiscard]] static expected<arrived_frame> left_over(frame&& rest, remains what,
                                                         std::uint64_t bytes, error why);
  /// What came right behind the handshake.
  struct early {
    std::vector<arrived_frame> frames;
    bool another_begun = false;
  };
  /// Takes over a connection on `at` whose handshake is done.
  void install(connection_ptr connection, asio::io_context& at, early first);
  /// A try to connect failed: tries again later, unless it never can.
  void cannot_connect(error why);

  // ── the end, worker's thread ──

  /// Ends every waiting call, and whatever would wait for room from now on; the link stays.
  void fail_calls(const error& reason);
  /// Closes without reporting a loss (end of a run).
  void close();

  /// Whether a loss, if there was one, has been told to everybody here. Worker's thread.
  [[nodiscard]] bool settled() const { return lost_ || now() != state::down; }

  // ── life ──

  /// Every ping interval, on the front thread: says that this worker lives, if nothing else did.
  void beat(bool reading) noexcept;
  /// Every ping interval, on each thread with links: whether the peer still does.
  void judge(const asio::io_context& here, duration interval) noexcept;

  // ── what the worker does with frames of this link, worker's thread ──
  void handle_here(frame&& f, error lacking);
  void start_coroutine(ref<invocation> call) noexcept;
  void coroutine_ended(invocation& done);
  void forget(invocation& call) noexcept override;
  /// Ends every call that waits for its object, and whatever would wait from now on. Any thread.
  void close_waiting();
  /// Forgets them without an answer: they hold their requests, which hold this link.
  void drop_waiting();

  // ── frame_sink, the thread that reads ──
  [[nodiscard]] const limits& bounds() const noexcept override;
  [[nodiscard]] expected<blob> allocate(std::size_t size) override;
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override;
  [[nodiscard]] expected<void> frame_skipped(frame&& rest, remains what, std::uint64_t bytes,
                                             error why) override;
  void progress() noexcept override;

 private:
  // sending
  std::optional<std::uint64_t> push(frame&& f);
  void write_locked(std::unique_lock<std::mutex>& lock) noexcept;
  void wrote(std::uint64_t before) noexcept;
  asio::awaitable<void> write_rest(connection_ptr connection);
  bool look_for_room() noexcept;
  void wake_line() noexcept;
  void send_small(frame_kind kind, std::uint64_t call) noexcept;
  void give_credit() noexcept;
  [[nodiscard]] bool take_back(std::uint64_t number) noexcept;
  [[nodiscard]] execution give_up(std::uint64_t call, std::uint64_t number) noexcept;
  template <class Tell>
  void each_service(Tell&& tell) noexcept;

  // connections
  void begin_connecting() noexcept;
  void begin_reading(connection_ptr connection, early first);
  void finish_loss() noexcept;
  void end_run(error why) noexcept;

  // reading
  [[nodiscard]] error over_budget(std::uint64_t size, const char* of_what) const;
  asio::awaitable<void> read_loop(connection_ptr connection);
  expected<void> handle_arrived();
  expected<void> look_over(const std::vector<arrived_frame>& batch);
  [[nodiscard]] static bool gives_credit(frame_kind k) noexcept {
    return is_answer(k) || k == frame_kind::window;
  }
  expected<void> take_credit(const std::vector<arrived_frame>& batch);
  void room_for_arrived();
  expected<void> handle(arrived_frame&& came);
  void reply_arrived(incoming_message&& m);
  void watch_stalls();

  // serving
  expected<void> handle_request(arrived_frame&& came);
  void refuse_request(std::uint64_t call, std::uint16_t flags, const error& why) noexcept;
  void dispatch(const ref<invocation>& call);
  void run_plain(ref<invocation> call) noexcept;
  void serve(const ref<invocation>& call) noexcept;
  void run_here(const ref<invocation>& call) noexcept;
  void fail(const ref<invocation>& call) noexcept;
  enum class order : std::uint8_t { none, of_arrival, released };
  [[nodiscard]] bool begin(const ref<invocation>& call, order how) noexcept;
  [[nodiscard]] bool begins_at_once(invocation& call) const noexcept;
  void no_longer_served(std::uint64_t call) noexcept;
  void open_gates() noexcept {
    const std::lock_guard lock(serving_mutex_);
    ungated_ = true;
  }
  void release_soon() noexcept;
  void release_gated() noexcept;
  // calls that wait for their object
  class waiting_call;
  struct waiting_alarm final : timed {
    explicit waiting_alarm(live_link& l) : link_(l) {}
    void expired() override;
    live_link& link_;
  };
  void wait_for_object(ref<invocation> call);  // the thread that reads
  // Any thread:
  void object_there(std::uint64_t number, run_style style) noexcept;
  void begin_waiting(std::uint64_t number) noexcept;
  void fail_with_object(const ref<invocation>& call, const call_target& target) noexcept;
  void give_up_waiting(const ref<waiting_call>& w, const error& why) noexcept;
  [[nodiscard]] ref<waiting_call> take_waiting(std::uint64_t number) noexcept;
  void watch_waiting(const std::unique_lock<std::mutex>&) noexcept;
  void cancel_served(std::uint64_t call);
  void cancel_all_served() noexcept;

  live_worker<T>& me_;

  mutable std::mutex mutex_;  // guards the next group
  state state_ = state::idle;
  asio::io_context* io_;
  cursor outbox_;
  bool writing_ = false;  // write_rest is under way
  std::atomic<const void*> dirty_{
      nullptr};  // in that list of links to flush; written under the lock
  connection_ptr connection_;
  error reason_;  // why it is down, or why the last try to connect failed
  bool promised_ = false;
  bool dialing_ = false;
  bool wanted_ = false;  // to be connected though nothing waits to be sent
  unsigned tries_ = 0;
  std::uint64_t unsent_from_ = 0;  // of a lost link: frames from here on were not begun
  send_window window_;
  signs_of_life life_;

  // Guards the next four. Taken under `mutex_` too, never the other way round: who reads requests
  // does not wait for who writes.
  std::mutex serving_mutex_;
  receive_window granted_;
  served_calls<invocation> served_;
  std::deque<ref<invocation>> gated_;  // wait until replies are written
  bool ungated_ = false;               // the link is down: no request waits any more

  /// Calls of one peer that wait for objects; more are refused with resource_exhausted.
  static constexpr std::size_t most_waiting_calls = 65536;
  std::mutex waiting_mutex_;  // guards the next four; nothing is called under it
  waiting_calls<ref<waiting_call>, time_point> waiting_{most_waiting_calls};
  std::optional<time_point> waiting_watched_;  // the alarm rings then
  bool watch_posted_ = false;
  sure_post watch_post_;
  waiting_alarm waiting_alarm_{*this};  // worker's thread

  std::atomic<bool> dead_{false};           // nothing more is read
  std::atomic<bool> roomy_{true};           // for a request; written under the lock
  std::atomic<bool> retry_pending_{false};  // the next try to connect could not be posted
  std::atomic<bool> releasing_{false};      // release_post_ is on its way
  std::atomic<bool> waking_{false};         // line_post_ is
  sure_post loss_post_;
  sure_post release_post_;
  sure_post line_post_;
  std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> written_{0};
  std::atomic<bool> peer_busy_{false};  // its reading thread, by its own word

  const ref<memory_budget> budget_;  // of received tensors and arguments of coroutines
  // The thread that reads:
  bool on_worker_thread_ = true;
  std::vector<arrived_frame> arrived_;
  time_point arrived_at_{};               // the batch under way
  std::vector<std::uint64_t> cancelled_;  // by what came together, sorted
  bool partial_ = false;                  // a frame has begun
  std::uint64_t progress_ = 0;
  std::unique_ptr<timer> stall_;
  // The front thread:
  std::unique_ptr<timer> retry_;

  // The worker's thread:
  waiting_line line_;
  std::optional<error> calls_over_;  // why no call waits for room any more
  std::uint64_t turn_ = 0;           // in which flush_early last wrote
  bool lost_ = false;
};

}  // namespace weft::detail
