// SPDX-License-Identifier: BSL-1.0
// Room helper: who writes and reads a worker's links, and when. Includes core/, transport/ and
// rpc/.
//
//   the worker's thread            handlers ─ send ─► list of links ─ end of the round ─► written
//     a round: what is ready          ▲
//     now, of its io_context          └─ reads its links, when it is at its loop
//
//   the helper's thread            a tick, while anything moves:
//     sleeps when nothing does       a round has lasted a whole tick ─► writes what that has sent
//                                    ... and answers no probe ─► reads the links, until it is back
//
// What is read goes the same way on either thread: frames of services and immediate functions are
// handled there, plain functions go to the pool, all else to the worker's inbox, in order. A link's
// lock sees to it that one thread at a time reads it. So a handler that never returns costs its
// peers what only that thread can do: coroutine functions, and this worker's own replies wait;
// immediate and plain functions are answered, references are counted, and the worker is not lost.
//
// This file: the list of links, and the helper's look at them. takeover.hpp decides when it reads,
// write_batch.hpp is the list of other threads, timer_alarm.hpp the tick.
#pragma once

#include <weft/core/detail/preallocated_post.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/helper/takeover.hpp>
#include <weft/rpc/link.hpp>
#include <weft/transport/arrivals.hpp>

#include <asio/io_context.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::engine {

/// An alarm that any thread may set, at the price of a system call, and that rings on the helper's
/// thread. Semantic duty: `arm` rings once, about so long after.
class tick_alarm {
 public:
  virtual ~tick_alarm() = default;
  virtual void arm(std::chrono::microseconds after) noexcept = 0;
};

/// The worker, as its helper sees it. The first may be called on either thread, but not twice at
/// once; the others on the helper's.
class helped {
 public:
  /// A round has ended, or lasts long: services send what they hold back.
  virtual void round_ends() noexcept = 0;
  /// Reads what has come on the links, and goes on writing. False: some are being read by the
  /// worker's thread, and were left out.
  [[nodiscard]] virtual bool read_links() noexcept = 0;
  /// Bytes that are left to write, on links that it reads.
  [[nodiscard]] virtual std::uint64_t left_to_write() const noexcept = 0;

 protected:
  ~helped() = default;
};

class helper {
 public:
  /// Between two looks of the helper, if there is something to look after. While the worker's
  /// thread is well they are more seldom, as each may take the core from it: the longer it has
  /// been well, the more, up to the last.
  static constexpr std::chrono::microseconds interval{300};
  static constexpr std::chrono::microseconds long_interval{1000};
  static constexpr std::chrono::microseconds longest_interval{8000};
  /// While a peer takes what is written, a socket's buffer at a time.
  static constexpr std::chrono::microseconds writing_interval{50};

  /// Without an alarm only the end of a round writes; without `arrived` nobody but the links' own
  /// threads reads.
  helper(helped& me, asio::io_context& loop, tick_alarm* alarm, weft::arrivals* arrived) noexcept
      : me_(me), loop_(loop), alarm_(alarm), arrivals_(arrived) {}
  helper(const helper&) = delete;
  helper& operator=(const helper&) = delete;

  // ── the worker's thread ──

  /// Its frames are written when the round ends.
  void add(weft::link& l);
  /// Services are told when the round ends.
  void hold();
  /// A batch ends the round itself.
  class batch {
   public:
    explicit batch(helper& of) noexcept : of_(of), outer_(std::exchange(of.open_, true)) {}
    batch(const batch&) = delete;
    batch& operator=(const batch&) = delete;
    ~batch() {
      if (!outer_) of_.end_round();
    }
    /// Writes what was sent so far.
    void flush() { of_.write_all(); }

   private:
    helper& of_;
    const bool outer_;
  };
  [[nodiscard]] bool round_open() const noexcept { return open_; }

  // ── any thread ──

  /// Nobody waits for its frames: they are written with the next ones, or at a tick. False, and no
  /// effect, if nothing would write them in time.
  [[nodiscard]] bool put_off(weft::link& l);
  /// A link could not write all: if the worker's thread does not go on with it, this does.
  void left_over() noexcept {
    if (arrivals_) arm(interval);
  }

  // ── the helper's thread ──

  /// Before anything arrives.
  void start() {
    if (arrivals_) arrivals_->wait();
  }
  void ticked();
  void arrived();
  [[nodiscard]] bool reads_links() const noexcept { return arrivals_ != nullptr; }

 private:
  using links = std::vector<intrusive_ptr<weft::link>>;
  void begin_round();
  void end_round();
  void write_all();
  static void write(links& all) noexcept;
  void arm(std::chrono::microseconds after) noexcept;
  void arm_later() noexcept;
  void take(takeover::steps next);

  helped& me_;
  asio::io_context& loop_;
  tick_alarm* const alarm_;
  weft::arrivals* const arrivals_;

  std::mutex mutex_;  // guards the next three; links are told nothing under it
  links dirty_;
  bool round_seen_ = false;  // something of this round, by a tick
  links put_off_;
  std::atomic<bool> armed_{false};
  std::atomic<bool> held_{false};  // by services
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> answered_{true};  // the probe has run
  weft::detail::preallocated_post probe_;
  // The worker's thread:
  bool open_ = false;  // a round whose end has been asked for
  links written_;      // empty: memory
  // The helper's:
  takeover takeover_;
  std::uint64_t left_ = 0;         // to write, at the last look
  unsigned well_ = 0;              // looks in a row, at which the worker's thread was
  std::uint64_t rounds_seen_ = 0;  // where it does not read
};

}  // namespace weft::engine
