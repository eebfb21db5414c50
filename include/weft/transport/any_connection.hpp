// SPDX-License-Identifier: BSL-1.0
// A connection without its type: one virtual call per batch, none per byte.
#pragma once

#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

/// See the concept `connection` for what each member promises.
class any_connection {
 public:
  virtual ~any_connection() = default;
  virtual write_status try_write(outbox& batch) noexcept = 0;
  virtual asio::awaitable<void> writable() = 0;
  virtual asio::awaitable<void> read(frame_sink& sink) = 0;
  virtual void close() noexcept = 0;
  /// Frames that it took and has not written: nothing is lost by `close` once there are none.
  [[nodiscard]] virtual std::size_t unsent_frames() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;
  /// Goes to another io_context, if it can. On its I/O thread, while nothing waits in it.
  virtual bool move_to(asio::io_context& io) = 0;
  /// The other end may vanish without a word.
  [[nodiscard]] virtual bool needs_life() const noexcept = 0;
};

using connection_ptr = std::shared_ptr<any_connection>;

namespace detail {

template <connection C>
class erased_connection final : public any_connection {
 public:
  erased_connection(C connection, std::string_view name) : c_(std::move(connection)), name_(name) {}
  write_status try_write(outbox& batch) noexcept override { return c_.try_write(batch); }
  asio::awaitable<void> writable() override { return c_.writable(); }
  asio::awaitable<void> read(frame_sink& sink) override { return c_.read(sink); }
  void close() noexcept override { c_.close(); }
  [[nodiscard]] std::size_t unsent_frames() const noexcept override {
    return weft::unsent_frames(c_);
  }
  [[nodiscard]] std::string_view transport() const noexcept override { return name_; }
  bool move_to(asio::io_context& io) override {
    if constexpr (requires { c_.move_to(io); }) {
      return c_.move_to(io);
    } else {
      return false;
    }
  }
  [[nodiscard]] bool needs_life() const noexcept override {
    if constexpr (requires { C::same_process; }) {
      return !C::same_process;
    } else {
      return true;
    }
  }

 private:
  C c_;
  std::string name_;
};

}  // namespace detail

template <connection C>
[[nodiscard]] connection_ptr make_any_connection(C c, std::string_view transport) {
  return std::make_shared<detail::erased_connection<C>>(std::move(c), transport);
}

}  // namespace weft
