// SPDX-License-Identifier: BSL-1.0
// Whole frames from one thread to another inside a process, and the connection made of them.
//
//   link A ─try_write─► [ frame_pipe ] ─read─► link B      two pipes: inproc; one: loopback
//          ◄──read──── [ frame_pipe ] ◄─try_write─
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/arrivals.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>
#include <weft/transport/outbox.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace weft::detail {

/// Bounded, one writer, one reader; each end may be used from any thread.
class frame_pipe : public ref_counted {
 public:
  /// The other end cannot vanish without a word.
  static constexpr bool same_process = true;
  static constexpr std::size_t most_frames = 1024;
  static constexpr std::uint64_t most_bytes = 64u << 20;  // one frame may exceed it
  enum class taken : std::uint8_t { frames, nothing, ended };

  void set_reader(intrusive_ptr<pipe_waiter> where) {
    std::lock_guard hold(lock_);
    reader_ = std::move(where);
  }
  void set_writer(intrusive_ptr<pipe_waiter> where) {
    std::lock_guard hold(lock_);
    writer_ = std::move(where);
  }
  /// Also woken by what the reader is woken by, whether that waits or not.
  void set_bell(const intrusive_ptr<pipe_waiter>& bell) {
    {
      std::lock_guard hold(lock_);
      bell_ = bell;
    }
    bell->wake();  // something may be there
  }

  /// Takes what fits; wakes the reader once.
  [[nodiscard]] write_status put(outbox& batch) noexcept {
    std::unique_lock hold(lock_);
    if (ended_) return write_status::closed;
    if (batch.empty()) return write_status::everything;
    while (!batch.empty() && has_room()) {
      frame f = batch.take();
      bytes_ += f.wire_size();
      or_die([&] { queue_.push(std::move(f)); });
    }
    writer_waits_ = !batch.empty();
    const auto result = writer_waits_ ? write_status::blocked : write_status::everything;
    const intrusive_ptr<pipe_waiter> bell = bell_;
    wake(hold, std::exchange(reader_waits_, false) ? reader_ : nullptr);
    if (bell) bell->wake();
    return result;
  }
  /// Moves all frames to the empty queue `out`. After `nothing` the reader is woken by the next.
  [[nodiscard]] taken take(frame_queue& out) {
    std::unique_lock hold(lock_);
    if (queue_.empty()) {
      reader_waits_ = !ended_;
      return ended_ ? taken::ended : taken::nothing;
    }
    queue_.swap(out);
    bytes_ = 0;
    wake(hold, std::exchange(writer_waits_, false) ? writer_ : nullptr);
    return taken::frames;
  }
  /// True if `take` finds something; else the reader is woken when it does.
  [[nodiscard]] bool may_take() {
    std::lock_guard hold(lock_);
    reader_waits_ = queue_.empty() && !ended_;
    return !reader_waits_;
  }
  /// True if `put` may take more; else the writer is woken when it may.
  [[nodiscard]] bool may_put() {
    std::lock_guard hold(lock_);
    writer_waits_ = !has_room() && !ended_;
    return !writer_waits_;
  }
  [[nodiscard]] bool ended() {
    std::lock_guard hold(lock_);
    return ended_;
  }
  /// Nothing more is put; what was put is still read.
  void writer_gone() noexcept { end(); }
  void reader_gone() noexcept { end(); }
  void end() noexcept {
    std::unique_lock hold(lock_);
    ended_ = true;
    const intrusive_ptr<pipe_waiter> reader =
        std::exchange(reader_waits_, false) ? reader_ : nullptr;
    const intrusive_ptr<pipe_waiter> writer =
        std::exchange(writer_waits_, false) ? writer_ : nullptr;
    const intrusive_ptr<pipe_waiter> bell = bell_;
    wake(hold, reader);
    wake(hold, writer);
    if (bell) bell->wake();
  }

 private:
  [[nodiscard]] bool has_room() const noexcept {
    return queue_.empty() || (queue_.size() < most_frames && bytes_ < most_bytes);
  }

  /// Held: an end that moves to another io_context waits elsewhere from then on.
  static void wake(std::unique_lock<std::mutex>& hold,
                   const intrusive_ptr<pipe_waiter>& waiter) noexcept {
    if (hold.owns_lock()) hold.unlock();
    if (waiter) waiter->wake();
  }

  std::mutex lock_;
  frame_queue queue_;
  std::uint64_t bytes_ = 0;
  bool ended_ = false;
  bool reader_waits_ = false;  // implies that reader_ is set; so for the writer
  bool writer_waits_ = false;
  intrusive_ptr<pipe_waiter> reader_;
  intrusive_ptr<pipe_waiter> writer_;
  intrusive_ptr<pipe_waiter> bell_;
};

/// A `connection` that hands over memory instead of bytes, by two `frame_pipe`s or what looks like
/// them. Frames come from this process and are not checked.
template <class Pipe>
class basic_pipe_connection {
 public:
  using executor_type = asio::io_context::executor_type;
  static constexpr bool same_process = Pipe::same_process;

  basic_pipe_connection(asio::io_context& io, intrusive_ptr<Pipe> in, intrusive_ptr<Pipe> out)
      : state_(make_intrusive<state>(io, std::move(in), std::move(out))) {}
  basic_pipe_connection(basic_pipe_connection&&) noexcept = default;
  basic_pipe_connection& operator=(basic_pipe_connection&&) = delete;
  ~basic_pipe_connection() {
    if (state_) close();
  }

  [[nodiscard]] write_status try_write(outbox& batch) noexcept {
    if (state_->closed.load(std::memory_order_relaxed)) return write_status::closed;
    return state_->out->put(batch);
  }
  [[nodiscard]] asio::awaitable<void> writable() {
    state& s = *state_;
    for (;;) {
      check();
      if (s.out->ended()) throw peer_gone();
      if (s.out->may_put()) co_return;
      co_await s.write_wait->wait();
    }
  }
  [[nodiscard]] asio::awaitable<void> read(frame_sink& sink) { return read_into(&sink); }
  void close() noexcept {
    state& s = *state_;
    if (s.closed.exchange(true)) return;
    s.out->writer_gone();
    s.in->reader_gone();
    s.read_wait->wake();
    s.write_wait->wake();
  }
  [[nodiscard]] bool read_at_once(frame_sink& sink) {
    state& s = *state_;
    check();
    const auto got = s.in->take(s.arriving);
    if (got == Pipe::taken::nothing) return false;
    if (got == Pipe::taken::ended) throw peer_gone();
    sink.progress();
    while (!s.arriving.empty()) {
      auto delivered = sink.frame_arrived(s.arriving.pop());
      if (!delivered) throw rpc_error(std::move(delivered).error());
      check();
    }
    return true;
  }
  [[nodiscard]] asio::awaitable<void> readable() {
    state& s = *state_;
    check();
    // Also what is there already is told by the loop: a worker that is always sent more has timers.
    if (s.in->may_take()) s.read_wait->wake();
    do {
      co_await s.read_wait->wait();
      check();
    } while (!s.in->may_take());
  }
  void announce_to(const intrusive_ptr<arrival_ends>& to) { state_->in->set_bell(to->bell()); }
  [[nodiscard]] executor_type get_executor() const noexcept { return state_->executor; }
  [[nodiscard]] bool move_to(asio::io_context& io) {
    auto moved = make_intrusive<state>(io, state_->in, state_->out);
    moved->arriving.swap(state_->arriving);
    moved->closed.store(state_->closed.load());
    state_ = std::move(moved);
    return true;
  }

 private:
  struct state : ref_counted {
    state(asio::io_context& io, intrusive_ptr<Pipe> i, intrusive_ptr<Pipe> o)
        : executor(io.get_executor()),
          read_wait(make_intrusive<pipe_waiter>(io)),
          write_wait(make_intrusive<pipe_waiter>(io)),
          in(std::move(i)),
          out(std::move(o)) {
      in->set_reader(read_wait);
      out->set_writer(write_wait);
    }
    const executor_type executor;
    const intrusive_ptr<pipe_waiter> read_wait;
    const intrusive_ptr<pipe_waiter> write_wait;
    const intrusive_ptr<Pipe> in;
    const intrusive_ptr<Pipe> out;
    std::atomic<bool> closed{false};
    frame_queue arriving;  // taken, not yet delivered
  };

  asio::awaitable<void> read_into(frame_sink* sink) {
    while (!read_at_once(*sink)) co_await state_->read_wait->wait();
  }
  void check() const {
    if (!state_->closed.load(std::memory_order_relaxed)) return;
    throw rpc_error(
        error(errc::closed, "the connection was closed here", call_progress::maybe_executed));
  }
  [[nodiscard]] static rpc_error peer_gone() {
    return rpc_error(error(errc::peer_died, "the peer closed the connection",
                           call_progress::maybe_executed, origin::transport));
  }

  intrusive_ptr<state> state_;
};
using pipe_connection = basic_pipe_connection<frame_pipe>;

}  // namespace weft::detail
