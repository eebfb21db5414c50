// SPDX-License-Identifier: BSL-1.0
// A transport of one's own in one header: TCP whose bytes are scrambled on the way.
//
// A byte stream is three functions over another stream; `weft::framed` makes a connection of it.
// Listening and connecting is left to weft::tcp, upon which this is a layer, as TLS would be.
#pragma once

#include <weft/transport/framed.hpp>
#include <weft/transport/tcp.hpp>

#include <asio/buffer.hpp>
#include <asio/compose.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Swaps every bit of every byte. Not a secret to anybody: a place to put your own idea.
class scrambled_stream {
 public:
  using executor_type = weft::tcp::stream_type::executor_type;

  explicit scrambled_stream(weft::tcp::stream_type next) : next_(std::move(next)) {}
  executor_type get_executor() { return next_.get_executor(); }
  void close(std::error_code& ec) { next_.close(ec); }

  /// As Asio wants it: completes with (error_code, size_t), with whatever came.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_compose<Token, void(std::error_code, std::size_t)>(
        [this, buffers, started = false](auto& self, std::error_code ec = {},
                                         std::size_t size = 0) mutable {
          if (!std::exchange(started, true)) {
            return next_.async_read_some(buffers, std::move(self));
          }
          std::size_t left = size;
          for (auto b = asio::buffer_sequence_begin(buffers); left > 0; ++b) {
            const auto part = asio::buffer(asio::mutable_buffer(*b), left);
            swap_bits(static_cast<char*>(part.data()), part.size());
            left -= part.size();
          }
          self.complete(ec, size);
        },
        token, next_);
  }

  /// One write at a time, so one buffer is enough; the caller's bytes stay as they are.
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    scrambled_.resize(std::min(asio::buffer_size(buffers), std::size_t{64 * 1024}));
    asio::buffer_copy(asio::buffer(scrambled_), buffers);
    swap_bits(scrambled_.data(), scrambled_.size());
    return next_.async_write_some(asio::buffer(scrambled_), std::forward<Token>(token));
  }

 private:
  static void swap_bits(char* at, std::size_t size) {
    for (char* const end = at + size; at != end; ++at) *at = static_cast<char>(~*at);
  }

  weft::tcp::stream_type next_;
  std::vector<char> scrambled_;
};

/// What `weft::run<scrambled_tcp>` is given.
class scrambled_tcp {
 public:
  static constexpr std::string_view name = "scrambled";
  using connection_type = weft::framed<scrambled_stream>;

  std::string listen(asio::io_context& io) { return std::string(prefix) + tcp_.listen(io); }
  bool reaches(std::string_view endpoint) const {
    return endpoint.starts_with(prefix) && tcp_.reaches(endpoint.substr(prefix.size()));
  }
  asio::awaitable<connection_type> connect(asio::io_context& io, std::string endpoint) {
    if (!reaches(endpoint)) throw weft::rpc_error(weft::errc::invalid_argument, endpoint);
    auto stream = co_await tcp_.connect_stream(io, endpoint.substr(prefix.size()));
    co_return connection_type(scrambled_stream(std::move(stream)));
  }
  asio::awaitable<connection_type> accept(asio::io_context& io) {
    auto stream = co_await tcp_.accept_stream(io);
    co_return connection_type(scrambled_stream(std::move(stream)));
  }
  void close() noexcept { tcp_.close(); }

 private:
  static constexpr std::string_view prefix = "scrambled:";
  weft::tcp tcp_;
};
