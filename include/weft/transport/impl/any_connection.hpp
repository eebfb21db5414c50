// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/transport/any_connection.hpp.
#pragma once

#include <weft/transport/any_connection.hpp>
#include <weft/transport/arrivals.hpp>
#include <weft/transport/concepts.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft::detail {

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
  [[nodiscard]] bool shares_reading() const noexcept override {
    return connection_shares_reading<C>;
  }
  bool read_at_once(frame_sink& sink) override {
    if constexpr (connection_shares_reading<C>) return c_.read_at_once(sink);
    return false;
  }
  asio::awaitable<void> readable() override {
    if constexpr (connection_shares_reading<C>) return c_.readable();
    return {};
  }
  void announce_to(intrusive_ptr<arrival_ends> to) override {
    if constexpr (connection_shares_reading<C>) c_.announce_to(std::move(to));
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

}  // namespace weft::detail

namespace weft {

template <connection C>
connection_ptr make_any_connection(C c, std::string_view transport) {
  return std::make_shared<detail::erased_connection<C>>(std::move(c), transport);
}

}  // namespace weft
