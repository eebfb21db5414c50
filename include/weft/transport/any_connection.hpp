// SPDX-License-Identifier: BSL-1.0
// A connection without its type: one virtual call per batch, none per byte.
#pragma once

#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstddef>
#include <memory>
#include <string_view>

namespace weft {

/// The concept `connection` has the duty and the threads of each member.
///
///   weft::connection_ptr c = weft::make_any_connection(std::move(mine), "mine");
class any_connection {
 public:
  virtual ~any_connection() = default;
  virtual write_status try_write(outbox& batch) noexcept = 0;
  virtual asio::awaitable<void> writable() = 0;
  virtual asio::awaitable<void> read(frame_sink& sink) = 0;
  virtual void close() noexcept = 0;
  /// Frames that it took and has not written. If there are none, `close` loses nothing.
  [[nodiscard]] virtual std::size_t unsent_frames() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;
  /// Goes to another io_context, if it can. On its I/O thread, while no operation waits in it.
  virtual bool move_to(asio::io_context& io) = 0;
  /// Whether it has the next three members, of the concept `connection_shares_reading`.
  [[nodiscard]] virtual bool shares_reading() const noexcept = 0;
  virtual bool read_at_once(frame_sink& sink) = 0;
  virtual asio::awaitable<void> readable() = 0;
  virtual void announce_to(intrusive_ptr<arrival_ends> to) = 0;
  /// The other end may vanish without a word.
  [[nodiscard]] virtual bool needs_life() const noexcept = 0;
};

using connection_ptr = std::shared_ptr<any_connection>;

/// `c` without its type, of a transport of that name.
template <connection C>
[[nodiscard]] connection_ptr make_any_connection(C c, std::string_view transport);

}  // namespace weft

#include <weft/transport/impl/any_connection.hpp>
