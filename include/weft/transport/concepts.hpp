// SPDX-License-Identifier: BSL-1.0
// The concepts of a transport, of its connections, and of the byte streams that `framed` turns into
// connections. tests/conformance/suite.hpp checks the duties that types cannot express.
//
//   transport ──connect/accept──► connection ◄── framed<byte_stream>      tcp, unix_socket, yours
//                                            ◄── moves whole frames itself    inproc, loopback
//
// A frame has the same bytes on every byte stream. First comes `frame::head`: the header (64 bytes,
// wire/header.hpp), payload and table. Then come the tensor buffers one after another,
// `frame::blobs`, whose lengths are in the table. Nothing is between two frames.
//
// If your connection moves bytes but is no Asio stream, use `outbox::gather` and `frame_assembler`.
// The first gives buffers to write; the second checks arriving bytes and makes frames of them.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/transport/frame_sink.hpp>
#include <weft/transport/outbox.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/as_tuple.hpp>
#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/socket_base.hpp>
#include <asio/use_awaitable.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

namespace weft {

class arrival_ends;  // transport/arrivals.hpp

/// The outcome of `try_write`.
enum class write_status : std::uint8_t {
  everything,  ///< the outbox is empty
  blocked,     ///< frames are left: await `writable()`, then call `try_write` again
  closed,      ///< the connection is closed or broken; the wait in `read()` says which
};

/// `T` can be awaited inside `asio::awaitable`, and gives a `Result`.
template <class T, class Result>
concept awaitable_of = std::same_as<T, asio::awaitable<Result>>;

// ── connection: moves whole frames between two processes, in order ───────────────────────────

/// Any thread, under the link's lock: takes as much as it can at once. It never waits and never
/// calls back into the link. Bytes that it took stay valid until the outbox's frame is finished.
template <class C>
concept connection_writes = requires(C& c, outbox& batch) {
  { c.try_write(batch) } noexcept -> std::same_as<write_status>;
};

/// I/O thread, one at a time: returns when `try_write` may take more. If it never will, it throws
/// rpc_error (closed, peer_died).
template <class C>
concept connection_waits_to_write = requires(C& c) {
  { c.writable() } -> awaitable_of<void>;
};

/// I/O thread, one at a time: delivers at least one frame, then every complete one that is here.
/// Throws rpc_error: peer_died at the end of the stream, after all whole frames; closed after
/// `close()`; protocol_error and others for bytes that the peer may not send.
template <class C>
concept connection_reads = requires(C& c, frame_sink& sink) {
  { c.read(sink) } -> awaitable_of<void>;
};

/// Any thread, under the same lock as `try_write`, any number of times: ends both waits with
/// errc::closed, and the other side's `read` with errc::peer_died. After it no call touches the
/// descriptor. The object outlives its waits.
template <class C>
concept connection_closes = requires(C& c) {
  { c.close() } noexcept;
};

/// The executor of the io_context that the connection is pinned to.
template <class C>
concept connection_has_executor = requires(C& c) {
  { c.get_executor() } -> std::convertible_to<asio::any_io_executor>;
};

/// Optional, for connections that `take` frames before they write them: the number of frames that
/// are not wholly written; 0 if the connection is closed or broken. Any thread, under the same lock
/// as `try_write`.
template <class C>
concept connection_counts_unsent = requires(const C& c) {
  { c.unsent_frames() } noexcept -> std::same_as<std::size_t>;
};

/// Optional: the worker's own thread reads the connection, and its helper while that thread
/// computes.
///   move_to       goes to another io_context, on its I/O thread, before its first use. False: no
///   read_at_once  `read` without the wait, or a part of a frame. False: nothing is here. Any
///                 thread, one at a time
///   readable      returns when `read_at_once` may find something; throws as `read`. I/O thread
///   announce_to   called once: tells these ends of bytes that are here and that arrive later
template <class C>
concept connection_shares_reading =
    requires(C& c, asio::io_context& io, frame_sink& sink, intrusive_ptr<arrival_ends> to) {
      { c.move_to(io) } -> std::same_as<bool>;
      { c.read_at_once(sink) } -> std::same_as<bool>;
      { c.readable() } -> awaitable_of<void>;
      { c.announce_to(to) };
    };

/// Frames that the connection took and has not written. Closing it now loses them.
template <class C>
[[nodiscard]] std::size_t unsent_frames(const C& c) noexcept {
  if constexpr (connection_counts_unsent<C>) {
    return c.unsent_frames();
  } else {
    return 0;
  }
}

/// Movable before its first use, not after. Frames arrive whole, in order and once, or not at all.
template <class C>
concept connection =
    std::move_constructible<C> && connection_writes<C> && connection_waits_to_write<C> &&
    connection_reads<C> && connection_closes<C> && connection_has_executor<C>;

// ── transport: opens connections ─────────────────────────────────────────────────────────────

/// One word, the same in every process: "tcp".
template <class T>
concept transport_has_name = requires {
  { T::name } -> std::convertible_to<std::string_view>;
};

/// The type that connect and accept return.
template <class T>
concept transport_has_connection = connection<typename T::connection_type>;

/// Called once: opens the listening end, whose accepts run on that io_context. Returns the
/// endpoint: printable text from which another process learns whether and how it reaches this one.
template <class T>
concept transport_listens = requires(T& t, asio::io_context& io) {
  { t.listen(io) } -> std::same_as<std::string>;
};

/// Whether `connect` to that endpoint can succeed from this process. Any text may come; no I/O.
template <class T>
concept transport_judges = requires(const T& t, std::string_view endpoint) {
  { t.reaches(endpoint) } -> std::same_as<bool>;
};

/// Runs on `io`, to which the connection is pinned. Throws rpc_error: peer_died if no process
/// listens there, resource_exhausted if descriptors or memory are short.
template <class T>
concept transport_connects = requires(T& t, asio::io_context& io, std::string endpoint) {
  { t.connect(io, endpoint) } -> awaitable_of<typename T::connection_type>;
};

/// Runs on the io_context given to `listen`, one at a time. The connection is pinned to `io`. It
/// survives a shortage of descriptors. Throws rpc_error: closed after `close()`.
template <class T>
concept transport_accepts = requires(T& t, asio::io_context& io) {
  { t.accept(io) } -> awaitable_of<typename T::connection_type>;
};

/// Any thread, any number of times: ends listening and the wait in `accept`. Connections stay open.
template <class T>
concept transport_closes = requires(T& t) {
  { t.close() } noexcept;
};

/// A transport. Example of your own one, in examples/custom_transport.hpp:
///
///   static_assert(weft::assert_transport<scrambled_tcp>());
///   int main() { return weft::run<scrambled_tcp, weft::tcp>(main_); }
template <class T>
concept transport =
    transport_has_name<T> && transport_has_connection<T> && transport_listens<T> &&
    transport_judges<T> && transport_connects<T> && transport_accepts<T> && transport_closes<T>;

/// `static_assert(assert_transport<T>())` says in a sentence what is missing in `T`.
template <class T>
consteval bool assert_transport() {
  static_assert(
      requires { sizeof(T); },
      "weft: this transport is only declared here: include its header, such as "
      "<weft/transport/tcp.hpp>");
  static_assert(transport_has_name<T>,
                "weft: a transport must provide `static constexpr std::string_view name`");
  static_assert(
      requires { typename T::connection_type; },
      "weft: a transport must provide the type `connection_type`");
  using connection_type = typename T::connection_type;
  static_assert(std::move_constructible<connection_type>,
                "weft: a connection must be movable before its first use");
  static_assert(connection_writes<connection_type>,
                "weft: a connection must provide `write_status try_write(outbox&) noexcept`");
  static_assert(connection_waits_to_write<connection_type>,
                "weft: a connection must provide `asio::awaitable<void> writable()`");
  static_assert(connection_reads<connection_type>,
                "weft: a connection must provide `asio::awaitable<void> read(frame_sink&)`");
  static_assert(connection_closes<connection_type>,
                "weft: a connection must provide `close() noexcept`");
  static_assert(
      connection_counts_unsent<connection_type> ||
          !requires(connection_type& c) { c.unsent_frames(); },
      "weft: a connection's unsent_frames, if it has one, must be `std::size_t "
      "unsent_frames() const noexcept`");
  static_assert(connection_has_executor<connection_type>,
                "weft: a connection must provide `get_executor()` of its io_context");
  static_assert(transport_listens<T>,
                "weft: a transport must provide `std::string listen(asio::io_context&)`");
  static_assert(transport_judges<T>,
                "weft: a transport must provide `bool reaches(std::string_view) const`");
  static_assert(transport_connects<T>,
                "weft: a transport must provide `asio::awaitable<connection_type> "
                "connect(asio::io_context&, std::string)`");
  static_assert(transport_accepts<T>,
                "weft: a transport must provide `asio::awaitable<connection_type> "
                "accept(asio::io_context&)`");
  static_assert(transport_closes<T>, "weft: a transport must provide `close() noexcept`");
  return transport<T>;
}

// ── byte_stream: `framed` turns it into a connection ─────────────────────────────────────────

/// The buffer sequence for streams: a span with const_iterator (which std::span has since C++23).
template <class Buffer>
class buffer_list : public std::span<Buffer> {
 public:
  using const_iterator = typename std::span<Buffer>::iterator;
  using std::span<Buffer>::span;
};
using mutable_buffer_list = buffer_list<asio::mutable_buffer>;
using const_buffer_list = buffer_list<const asio::const_buffer>;

/// An operation of a byte stream completes with an error code and a size.
template <class T>
concept completes_with_size = awaitable_of<T, std::tuple<std::error_code, std::size_t>>;

/// Asio's AsyncReadStream: takes the bytes that are there, at least one; an error at the end.
template <class S>
concept stream_reads = requires(S& s, asio::mutable_buffer one, mutable_buffer_list many) {
  { s.async_read_some(one, asio::as_tuple(asio::use_awaitable)) } -> completes_with_size;
  { s.async_read_some(many, asio::as_tuple(asio::use_awaitable)) } -> completes_with_size;
};

/// Asio's AsyncWriteStream; may run beside a read.
template <class S>
concept stream_writes = requires(S& s, const_buffer_list many) {
  { s.async_write_some(many, asio::as_tuple(asio::use_awaitable)) } -> completes_with_size;
};

/// Ends the stream's pending operations. Called on the I/O thread. In Asio's layered streams the
/// lowest layer has it.
template <class S>
concept stream_closes = requires(S& s, std::error_code& ec) { s.close(ec); } ||
                        requires(S& s, std::error_code& ec) { s.lowest_layer().close(ec); };

/// The executor of the io_context whose one thread runs the stream's operations.
template <class S>
concept stream_has_executor = requires(S& s) {
  typename S::executor_type;
  { s.get_executor() } -> std::convertible_to<asio::any_io_executor>;
};

/// Any Asio stream: a socket, a pipe, a TLS stream, one of yours.
template <class S>
concept byte_stream = std::move_constructible<S> && stream_reads<S> && stream_writes<S> &&
                      stream_closes<S> && stream_has_executor<S>;

/// Optional, makes sending cheap. write_some_nonblocking may be called from any thread while reads
/// and waits are pending on the I/O thread. It never waits; instead it reports would_block. (Asio's
/// own sockets need not provide it: weft knows them.)
template <class S>
concept nonblocking_byte_stream =
    byte_stream<S> && requires(S& s, const_buffer_list buffers, std::error_code& ec) {
      { s.write_some_nonblocking(buffers, ec) } -> std::same_as<std::size_t>;
      {
        s.async_wait(asio::socket_base::wait_write, asio::as_tuple(asio::use_awaitable))
      } -> awaitable_of<std::tuple<std::error_code>>;
    };

/// `static_assert(assert_byte_stream<S>())` says in a sentence what is missing in `S`.
template <class S>
consteval bool assert_byte_stream() {
  static_assert(std::move_constructible<S>, "weft: a byte stream must be movable");
  static_assert(stream_reads<S>,
                "weft: a byte stream must provide `async_read_some(buffers, token)` that completes "
                "with (error_code, size_t) for one buffer and for a list of them");
  static_assert(stream_writes<S>,
                "weft: a byte stream must provide `async_write_some(buffers, token)` that "
                "completes with (error_code, size_t)");
  static_assert(stream_closes<S>,
                "weft: a byte stream, or its lowest_layer(), must provide `close(error_code&)`");
  static_assert(stream_has_executor<S>,
                "weft: a byte stream must provide `executor_type` and `get_executor()`");
  return byte_stream<S>;
}

}  // namespace weft
