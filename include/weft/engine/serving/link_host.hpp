// SPDX-License-Identifier: BSL-1.0
// The worker as its links, its request queue and its services see it. What it is beyond that (its
// run, its transports) is engine/worker/worker.hpp.
#pragma once

#include <weft/core/detail/loop_thread.hpp>
#include <weft/core/detail/once_each.hpp>
#include <weft/core/time.hpp>
#include <weft/core/timer_list.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/helper/helper.hpp>
#include <weft/engine/helper/write_batch.hpp>
#include <weft/engine/serving/request_queue.hpp>
#include <weft/engine/serving/running_functions.hpp>
#include <weft/memory/buffer_pool.hpp>
#include <weft/memory/detail/memory_budget.hpp>
#include <weft/rpc/table.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/transport/any_connection.hpp>
#include <weft/transport/arrivals.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::engine {

/// What a worker is made of and does not own; a simulator brings its own. Outlives the worker.
struct worker_parts {
  asio::io_context& context;  ///< the worker's executor; one thread runs it
  weft::clock& time;
  random_source random;
  transport_set& transports;
  std::vector<asio::io_context*> io;  ///< where links live; empty: on `context`
  /// Where connections are opened, accepted and judged, and where signs of life come from: a thread
  /// that runs no user code for long. Null: `context`.
  asio::io_context* front = nullptr;
  /// Rings on `front`'s thread; null: only the end of a round writes what it sent.
  tick_alarm* alarm = nullptr;
  /// On `front`, whose thread then reads links that live on `context` while that computes; null:
  /// nobody does.
  weft::arrivals* arrivals = nullptr;
  /// Where plain functions run. Runs nothing any more when the worker is destroyed.
  asio::any_io_executor compute{};
  /// `context` is run by somebody who also runs other things there.
  bool users_loop = false;
  /// No launcher says without whom a run goes on, so rank 0 does.
  bool says_losses = false;
};

/// Counted by links and services of a worker. Any thread.
struct worker_counts {
  std::atomic<std::uint64_t> calls{0}, served{0}, posts_failed{0}, creations_failed{0};
  std::atomic<std::uint64_t> late_replies{0};
  std::atomic<std::uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0}, bytes_received{0};
};

class link_host : public weft::worker, private helped {
 public:
  // ── what it has; any thread unless marked ──

  using weft::worker::context;
  worker_counts counts;
  [[nodiscard]] const function_table& functions() const noexcept { return functions_; }
  [[nodiscard]] buffer_pool& buffers() noexcept { return buffers_; }
  /// What peers make this worker hold, against limits::worker_tensor_bytes.
  [[nodiscard]] const intrusive_ptr<memory_budget>& memory() const noexcept { return memory_; }
  /// For hashes of what peers choose.
  [[nodiscard]] std::uint64_t salt() const noexcept { return salt_; }
  [[nodiscard]] bool on_context(const asio::io_context& io) const noexcept {
    return &io == &env_.context;
  }
  /// Links live on the worker's thread.
  [[nodiscard]] bool links_on_context() const noexcept { return env_.io.empty(); }
  /// A connection that lives there: the helper hears of what comes on it. Throws std::system_error.
  void announce_arrivals(any_connection& of) { of.announce_to(env_.arrivals->ends()); }
  [[nodiscard]] asio::io_context& front() const noexcept {
    return env_.front ? *env_.front : env_.context;
  }
  [[nodiscard]] timer_list& deadlines() noexcept { return deadlines_; }  // worker's thread
  /// The plain functions that run on the pool now.
  [[nodiscard]] running_functions& running() noexcept { return running_; }
  /// The way to this worker's thread, and to the coroutines that serve requests there.
  [[nodiscard]] request_queue& requests() noexcept { return requests_; }
  /// For whoever runs `context`.
  [[nodiscard]] loop_thread& loop_is_run_by() noexcept { return loop_; }

  void count_sent(std::uint64_t frames, std::uint64_t bytes) noexcept {
    counts.frames_sent.fetch_add(frames, std::memory_order_relaxed);
    counts.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_received(std::uint64_t frames, std::uint64_t bytes) noexcept {
    counts.frames_received.fetch_add(frames, std::memory_order_relaxed);
    counts.bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  }
  /// A one-way call failed here: counted, and the first one of each function is said on standard
  /// error, unless it was given up.
  void post_failed(std::uint64_t function, std::string_view named, std::uint32_t from,
                   const error& why) noexcept;
  /// An object that `from` wanted could not be made here, and nobody has been told: as a post that
  /// failed. `function` is 0 if it is not here.
  void creation_failed(std::uint64_t function, std::uint32_t from, const error& why) noexcept;

  /// Who writes and reads its links.
  [[nodiscard]] engine::helper& helper() noexcept { return helper_; }
  /// Has services told when the round, or the batch, of this thread ends; false if there is none.
  [[nodiscard]] bool hold();

  // ── what it decides ──

  /// Opens a connection; ends in `install` or `cannot_connect` of the link. Any thread.
  virtual void connect(link& to) = 0;
  /// Opens one for large tensors; ends in `bulk_opened` of the link. Any thread.
  virtual void connect_bulk(link& to) = 0;
  // The worker's thread:
  virtual void control(link& from, incoming_message& m) = 0;
  virtual void lost(link& peer, const error& reason) = 0;
  /// Whose link ends once the run is over here is no loss, but for the one that ended the run.
  [[nodiscard]] virtual bool only_leaves(std::uint32_t peer) const noexcept = 0;
  /// The run is over, and nobody has failed.
  [[nodiscard]] virtual bool ended_well() const noexcept = 0;
  /// What who waits for `peer` is told, which only leaves.
  [[nodiscard]] virtual error loss_reason(std::uint32_t peer,
                                          const error& reason) const noexcept = 0;

 protected:
  link_host(worker_parts env, membership all, options settings);

  worker_parts env_;
  loop_thread loop_;

 private:
  void round_ends() noexcept override { batch_ends(*this); }

  timer_list deadlines_;
  running_functions running_;
  once_each failed_posts_, failed_creations_;
  function_table functions_;
  buffer_pool buffers_;
  intrusive_ptr<memory_budget> memory_;
  const std::uint64_t salt_;
  engine::helper helper_;
  request_queue requests_{*this};  // goes first: its links use the rest
};

}  // namespace weft::engine
