// SPDX-License-Identifier: BSL-1.0
// The link itself: outbox, writing, reading. A template only so that its bodies are compiled where
// a worker is made and nowhere else. Bodies: impl/live_link.hpp, impl/live_link_read.hpp.
#pragma once

#include <weft/core/event.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/connection.hpp>
#include <weft/rpc/invocation.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/waiting_calls.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/transport/frame_sink.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// Counts tensor memory that a peer made us hold; outlives links and workers, as tensors do.
class memory_budget : public ref_counted {
 public:
  memory_budget(std::uint64_t limit, ref<memory_budget> parent)
      : limit_(limit), parent_(std::move(parent)) {}
  /// Takes from this budget and its parent, or from none. What is taken is given back.
  [[nodiscard]] bool take(std::uint64_t bytes) noexcept {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) {
      if (!parent_ || parent_->take(bytes)) return true;
    }
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void give_back(std::uint64_t bytes) noexcept {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (parent_) parent_->give_back(bytes);
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  std::atomic<std::uint64_t> used_{0};
  const std::uint64_t limit_;
  const ref<memory_budget> parent_;
};

namespace detail {

template <class T = void>
class live_worker;

template <class T = void>
class live_link final : public link, public frame_sink {
 public:
  live_link(live_worker<T>& me, std::uint32_t rank, asio::io_context& io);
  ~live_link() override;

  /// Where it lives; fixed once it is up.
  [[nodiscard]] asio::io_context& io() const noexcept { return *io_; }

  [[nodiscard]] state now() const override;
  [[nodiscard]] std::string transport() const override;
  [[nodiscard]] error reason() const override;
  expected<void> send(message&& m, const frame_header& header) override;
  bool append(frame&& f) override;
  void flush() override;
  [[nodiscard]] std::size_t waiting() const override;
  asio::awaitable<expected<void>> room(time_point deadline) override;
  void lose(error reason) override;

  // ── connections, worker's thread ──

  /// Connects now if it never did.
  void open();
  /// A connection that the peer opened was welcomed and will be installed: no other one is opened
  /// or welcomed meanwhile. False: one is promised already, or the link is up or down.
  bool promise();
  /// The promised connection broke before it was installed; connects anew.
  void break_promise();
  /// Takes over a connection on `io` whose handshake is done, with frames that came right behind.
  void install(connection_ptr connection, asio::io_context& io, std::vector<frame> first);
  /// Ends every waiting call; the link stays.
  void fail_calls(const error& reason) {
    slots_.fail_all(reason.with([](error_detail& d) { d.ran = execution::maybe_executed; }));
  }
  /// Closes without reporting a loss (end of a run).
  void close();

  // ── what the worker does with frames of this link, worker's thread ──
  void handle_here(frame&& f);
  void start_coroutine(ref<invocation> call);
  void coroutine_ended(invocation& done);
  /// Ends every call that waits for its object, and whatever would wait from now on. Any thread.
  void close_waiting();
  /// Forgets them without an answer: they hold their requests, which hold this link.
  void drop_waiting();

  // ── frame_sink, I/O thread ──
  [[nodiscard]] const limits& bounds() const noexcept override;
  [[nodiscard]] expected<blob> allocate(std::size_t size) override;
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override;
  void progress() noexcept override;

 private:
  void begin_connecting();
  void write_locked(std::unique_lock<std::mutex>& lock);
  asio::awaitable<void> write_rest(connection_ptr connection);
  asio::awaitable<void> read_loop(connection_ptr connection);
  expected<void> handle_arrived();
  expected<void> handle(frame&& f);
  expected<void> handle_request(frame&& f);
  void run_plain(ref<invocation> call);

  // ── calls that wait for their object ──
  class waiting_call;
  struct waiting_alarm final : timed {
    explicit waiting_alarm(live_link& l) : link_(l) {}
    void expired() override;
    live_link& link_;
  };
  void wait_for_object(ref<invocation> call);                // I/O thread
  void object_there(std::uint64_t number, run_style style);  // any thread
  void begin_waiting(std::uint64_t number);                  // any thread
  void fail_with_object(const ref<invocation>& call, const call_target& target);
  void give_up_waiting(const ref<waiting_call>& w, const error& why);  // any thread
  void watch_waiting(const std::unique_lock<std::mutex>&);             // any thread
  void reply_arrived(incoming_message&& m);
  void watch_stalls();
  void update_full();
  void lose_soon(error reason);
  void cancel_served(std::uint64_t call);

  void sent_request(message&& m, const frame_header& header) override;

  live_worker<T>& me_;
  asio::io_context* io_;
  const bool on_worker_thread_;

  mutable std::mutex mutex_;  // guards the next group
  state state_ = state::idle;
  cursor outbox_;
  bool writing_ = false;         // write_rest is under way
  const cork* dirty_ = nullptr;  // in that cork's list
  connection_ptr connection_;
  error reason_;
  bool promised_ = false;

  const ref<memory_budget> budget_;  // of received tensors
  std::vector<frame> arrived_;       // I/O thread
  bool partial_ = false;             // I/O thread: a frame has begun
  std::uint64_t progress_ = 0;       // I/O thread
  std::unique_ptr<timer> stall_;     // I/O thread

  /// Calls of one peer that wait for objects; more are refused with resource_exhausted.
  static constexpr std::size_t most_waiting_calls = 65536;
  std::mutex waiting_mutex_;  // guards the next two; nothing is called under it
  waiting_calls<ref<waiting_call>, time_point> waiting_{most_waiting_calls};
  std::optional<time_point> waiting_watched_;  // the alarm rings then
  waiting_alarm waiting_alarm_{*this};         // worker's thread

  ref<event> room_;  // worker's thread, as is the rest
  invocation* serving_ = nullptr;
};

}  // namespace detail
}  // namespace weft
