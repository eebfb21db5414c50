// SPDX-License-Identifier: BSL-1.0
// Makes a connection of any Asio byte stream: tcp, unix_socket, one of yours.
//
//   writing   any thread, under the link's lock: one gathering write after another until the
//             kernel takes no more. If the stream cannot write at once, `try_write` hands whole
//             frames over, and `writable()` writes them.
//   reading   I/O thread: one read takes all bytes that are there. Small frames go into one buffer,
//             tensors into their final memory. Any thread may also read a socket without a wait.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/stream_io.hpp>
#include <weft/transport/frame_assembler.hpp>

#include <asio/error.hpp>
#include <asio/redirect_error.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace weft {

/// A `connection`; the concept has threads and lifetime. The stream is connected, and no other code
/// uses it.
template <class Stream>
class framed {
  static_assert(assert_byte_stream<Stream>());

 public:
  using stream_type = Stream;
  using executor_type = typename Stream::executor_type;

  explicit framed(Stream stream) : state_(make_intrusive<state>(std::move(stream))) {}

  [[nodiscard]] write_status try_write(outbox& batch) noexcept;
  [[nodiscard]] asio::awaitable<void> writable();
  [[nodiscard]] asio::awaitable<void> read(frame_sink& sink) { return read_into(&sink); }
  void close() noexcept;
  [[nodiscard]] std::size_t unsent_frames() const noexcept {
    const bool open = state_->now.load(std::memory_order_relaxed) == status::open;
    return open ? state_->unsent.load(std::memory_order_acquire) : 0;
  }
  [[nodiscard]] executor_type get_executor() { return state_->stream.get_executor(); }
  // Only for sockets; other streams stay on one thread.
  [[nodiscard]] bool move_to(asio::io_context& io)
    requires(detail::reads_at_once<Stream>)
  {
    if constexpr (detail::is_socket<Stream>) {
      return detail::move_socket(state_->stream, io);
    } else {
      return state_->stream.move_to(io);
    }
  }
  [[nodiscard]] bool read_at_once(frame_sink& sink)
    requires(detail::reads_at_once<Stream>);
  [[nodiscard]] asio::awaitable<void> readable()
    requires(detail::reads_at_once<Stream>);
  void announce_to(intrusive_ptr<arrival_ends> to)
    requires(detail::reads_at_once<Stream>);

 private:
  static constexpr bool at_once = detail::writes_at_once<Stream>;
  static constexpr std::size_t hand_over_bytes = 1u << 20;
  static constexpr std::size_t turn_bytes = 1u << 20;  // read at once

  enum class status : std::uint8_t { open, broken, closed };

  struct state : ref_counted {
    explicit state(Stream s) : stream(std::move(s)) {}
    Stream stream;
    std::atomic<status> now{status::open};
    std::atomic<bool> closing{false};
    frame_assembler assembler;
    std::array<asio::mutable_buffer, 32> room;
    // Held where a socket is read without a wait, and where it is closed. Guards the next one.
    std::mutex reading;
    intrusive_ptr<arrival_ends> announced_to;
    // Only for streams that cannot write at once: `busy` passes both to the I/O thread and back.
    std::atomic<bool> busy{false};
    std::atomic<std::size_t> unsent{0};
    std::vector<frame> handed_over;
    std::vector<asio::const_buffer> buffers;  // of what is handed over

    void list_handed_over() {
      for (const frame& f : handed_over) {
        buffers.emplace_back(f.head.data(), f.head.size());
        for (const blob& b : f.blobs) buffers.emplace_back(b.data(), b.size());
      }
    }
  };

  write_status hand_over(outbox& batch) noexcept;
  asio::awaitable<void> read_into(frame_sink* sink);
  /// Whether any frame is complete now, of what was read. Throws what ends the connection.
  [[nodiscard]] bool arrived(std::size_t count, const std::error_code& ec, frame_sink& sink);
  void end(status how) noexcept;
  void check() const;
  [[noreturn]] void fail(const std::error_code& ec) const;

  intrusive_ptr<state> state_;
};

template <class Stream>
write_status framed<Stream>::try_write(outbox& batch) noexcept {
  if (state_->now.load(std::memory_order_relaxed) != status::open) return write_status::closed;
  if constexpr (!at_once) {
    return hand_over(batch);
  } else {
    std::array<asio::const_buffer, detail::gather_limit> buffers;
    for (std::uint64_t left = batch.turn(); !batch.empty();) {
      if (left == 0) return write_status::blocked;
      const const_buffer_list next(buffers.data(), batch.gather(buffers, left));
      std::error_code ec;
      const std::size_t sent = detail::write_at_once(state_->stream, next, ec);
      batch.advance(sent);
      left -= sent;
      if (ec == asio::error::would_block) return write_status::blocked;
      if (ec) {
        end(status::broken);
        return write_status::closed;
      }
      if (sent < asio::buffer_size(next)) return write_status::blocked;
    }
    return write_status::everything;
  }
}

template <class Stream>
write_status framed<Stream>::hand_over(outbox& batch) noexcept {
  state& s = *state_;
  if (s.busy.load(std::memory_order_acquire)) return write_status::blocked;
  if (batch.empty()) return write_status::everything;
  for (std::uint64_t bytes = 0; !batch.empty() && bytes < hand_over_bytes;) {
    detail::or_die([&] { s.handed_over.push_back(batch.take()); });
    bytes += s.handed_over.back().wire_size();
  }
  s.unsent.store(s.handed_over.size(), std::memory_order_release);
  s.busy.store(true, std::memory_order_release);
  return write_status::blocked;
}

template <class Stream>
asio::awaitable<void> framed<Stream>::writable() {
  state& s = *state_;
  check();
  std::error_code ec;
  if constexpr (at_once) {
    co_await s.stream.async_wait(asio::socket_base::wait_write,
                                 asio::redirect_error(asio::use_awaitable, ec));
  } else {
    if (!s.busy.load(std::memory_order_acquire)) co_return;
    s.list_handed_over();
    std::size_t written = 0;  // of the buffers
    // Not asio::async_write, whose buffers are a type of its own: a stream that takes this list as
    // it is would keep it beyond a temporary.
    while (written < s.buffers.size() && !ec) {
      const auto left = s.buffers.begin() + static_cast<std::ptrdiff_t>(written);
      std::size_t sent = co_await s.stream.async_write_some(
          const_buffer_list(left, s.buffers.end()), asio::redirect_error(asio::use_awaitable, ec));
      if (sent == 0 && !ec) ec = asio::error::connection_aborted;  // else it would go on for ever
      for (; written < s.buffers.size() && sent >= s.buffers[written].size(); ++written) {
        sent -= s.buffers[written].size();
      }
      if (sent > 0) s.buffers[written] += sent;
    }
    s.buffers.clear();
    s.handed_over.clear();
    s.unsent.store(0, std::memory_order_release);
    s.busy.store(false, std::memory_order_release);
  }
  check();
  if (ec) fail(ec);
}

template <class Stream>
asio::awaitable<void> framed<Stream>::read_into(frame_sink* sink) {
  state& s = *state_;
  for (;;) {
    if (s.now.load(std::memory_order_relaxed) == status::closed) check();
    const std::size_t pieces = s.assembler.room(s.room, sink->bounds());
    std::error_code ec;
    std::size_t count = 0;
    if (pieces == 1) {
      count = co_await s.stream.async_read_some(s.room[0],
                                                asio::redirect_error(asio::use_awaitable, ec));
    } else {
      count = co_await s.stream.async_read_some(mutable_buffer_list(s.room.data(), pieces),
                                                asio::redirect_error(asio::use_awaitable, ec));
    }
    if (arrived(count, ec, *sink)) co_return;
  }
}

template <class Stream>
bool framed<Stream>::arrived(std::size_t count, const std::error_code& ec, frame_sink& sink) {
  state& s = *state_;
  if (ec || s.now.load(std::memory_order_relaxed) == status::closed) {
    check();  // what ended here tells more than the aborted wait
    fail(ec);
  }
  auto delivered = s.assembler.arrived(count, sink);
  if (!delivered) throw rpc_error(std::move(delivered).error());
  return *delivered > 0;
}

template <class Stream>
bool framed<Stream>::read_at_once(frame_sink& sink)
  requires(detail::reads_at_once<Stream>)
{
  state& s = *state_;
  for (std::size_t left = turn_bytes; left > 0;) {
    std::size_t count = 0;
    std::error_code ec;
    {
      const std::lock_guard lock(s.reading);
      if (s.now.load(std::memory_order_relaxed) == status::closed) check();
      const auto given = s.assembler.hold_given();
      std::size_t pieces = 0;
      const std::size_t room = s.assembler.room(s.room, sink.bounds());
      for (std::size_t more = left; pieces < room && more > 0; ++pieces) {
        s.room[pieces] = asio::buffer(s.room[pieces], more);
        more -= s.room[pieces].size();
      }
      count = detail::read_at_once(s.stream, mutable_buffer_list(s.room.data(), pieces), ec);
    }
    if (ec == asio::error::would_block) return left < turn_bytes;
    if (arrived(count, ec, sink)) return true;
    left -= count;
  }
  return true;  // whoever else is on this thread has a turn
}

template <class Stream>
asio::awaitable<void> framed<Stream>::readable()
  requires(detail::reads_at_once<Stream>)
{
  std::error_code ec;
  if (state_->now.load(std::memory_order_relaxed) == status::closed) check();
  co_await state_->stream.async_wait(asio::socket_base::wait_read,
                                     asio::redirect_error(asio::use_awaitable, ec));
  if (state_->now.load(std::memory_order_relaxed) == status::closed) check();
  if (ec) fail(ec);
}

template <class Stream>
void framed<Stream>::announce_to(intrusive_ptr<arrival_ends> to)
  requires(detail::reads_at_once<Stream>)
{
  if constexpr (detail::is_socket<Stream>) {
    const std::lock_guard lock(state_->reading);
    if (state_->now.load() == status::closed) return;
    to->watch(state_->stream.native_handle());
    state_->announced_to = std::move(to);
  } else {
    state_->stream.announce_to(std::move(to));
  }
}

template <class Stream>
void framed<Stream>::close() noexcept {
  if (state_->now.load(std::memory_order_relaxed) != status::closed) end(status::closed);
}

/// The descriptor is released on the I/O thread, so that no wait there sees another's. A broken
/// connection keeps it while there may be something left to read.
template <class Stream>
void framed<Stream>::end(status how) noexcept {
  const bool was_open = state_->now.exchange(how) == status::open;
  if constexpr (detail::over_socket<Stream>) {
    if (was_open) detail::shut_down(state_->stream);
    if (how == status::broken) return;
  }
  if (state_->closing.exchange(true)) return;
  if constexpr (detail::is_socket<Stream>) {  // its end is told no more
    const std::lock_guard lock(state_->reading);
    if (state_->announced_to) state_->announced_to->forget(state_->stream.native_handle());
  }
  detail::post_or_die(state_->stream.get_executor(), [s = state_] {
    const std::lock_guard lock(s->reading);
    detail::close_stream(s->stream);
  });
}

template <class Stream>
void framed<Stream>::check() const {
  switch (state_->now.load(std::memory_order_relaxed)) {
  case status::open:
    return;
  case status::closed:
    throw rpc_error(
        error(errc::closed, "the connection was closed here", call_progress::maybe_executed));
  case status::broken:
    throw rpc_error(error(errc::peer_died, "writing to the peer failed",
                          call_progress::maybe_executed, origin::transport));
  }
}

template <class Stream>
void framed<Stream>::fail(const std::error_code& ec) const {
  std::string text = state_->assembler.between_frames()
                         ? "the peer closed the connection"
                         : "the peer closed the connection in the middle of a frame";
  if (ec != asio::error::eof) text = "the connection failed: " + ec.message();
  throw rpc_error(error(ec == asio::error::operation_aborted ? errc::cancelled : errc::peer_died,
                        std::move(text), call_progress::maybe_executed, origin::transport));
}

}  // namespace weft
