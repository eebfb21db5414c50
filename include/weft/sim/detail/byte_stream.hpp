// SPDX-License-Identifier: BSL-1.0
// Bytes on their way between two hosts of a simulated world, and the stream that `framed` reads.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/sim/network.hpp>
#include <weft/transport/arrivals.hpp>
#include <weft/transport/concepts.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>

#include <asio/buffer.hpp>
#include <asio/compose.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/socket_base.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace weft::sim::detail {

/// Bytes arrive in pieces that have nothing to do with those in which they were written.
class byte_channel final : public channel {
 public:
  using channel::channel;

  /// Takes what there is room for. `ec`: would_block, connection_reset.
  std::size_t put(const const_buffer_list& from, std::error_code& ec) noexcept {
    return weft::detail::or_die([&] { return put_some(from, ec); });
  }
  /// What has arrived. `ec`: would_block, eof.
  template <class Buffers>
  std::size_t take(const Buffers& to, std::error_code& ec) {
    if (arrived() == 0) {
      ec = end_arrived() ? std::error_code(asio::error::eof)
                         : std::error_code(asio::error::would_block);
      if (!end_arrived()) wait_to_read();
      return 0;
    }
    const std::size_t most = std::min<std::size_t>(arrived(), asio::buffer_size(to));
    const std::size_t n = net().decide().pick(8) == 7 && most > 1
                              ? 1 + net().decide().pick(static_cast<std::uint32_t>(
                                        std::min<std::size_t>(most - 1, 1u << 20)))
                              : most;
    asio::buffer_copy(to, asio::buffer(bytes_.data() + read_, n));
    read_ += n;
    if (read_ == bytes_.size() || read_ > 1u << 16) {
      bytes_.erase(0, read_);
      read_ = 0;
    }
    took(n);
    return n;
  }

 private:
  std::size_t put_some(const const_buffer_list& from, std::error_code& ec) {
    if (ended()) {
      ec = asio::error::connection_reset;
      return 0;
    }
    std::size_t all = 0;
    for (const asio::const_buffer& b : from) {
      const std::size_t fits = std::min<std::uint64_t>(b.size(), room());
      bytes_.append(static_cast<const char*>(b.data()), fits);
      all += fits;
      if (fits < b.size()) break;
    }
    if (all == 0 && asio::buffer_size(from) > 0) {
      static_cast<void>(may_put());
      ec = asio::error::would_block;
      return 0;
    }
    for (std::size_t left = all; left > 0;) {
      const std::size_t piece = one_piece(left);
      sent(piece);
      left -= piece;
    }
    return all;
  }
  [[nodiscard]] std::uint64_t room() const noexcept {
    const std::uint64_t held = bytes_.size() - read_;
    const std::uint64_t most = net().wires().buffer_bytes;
    return held < most ? most - held : 0;
  }
  [[nodiscard]] bool has_room() const noexcept override { return room() > 0; }
  void forget_in_flight() override { bytes_.resize(read_ + arrived()); }
  [[nodiscard]] std::size_t one_piece(std::size_t of) {
    if (of < 2 || net().decide().pick(4) < 3) return of;
    return 1 +
           net().decide().pick(static_cast<std::uint32_t>(std::min<std::size_t>(of - 1, 1u << 20)));
  }

  std::string bytes_;     // not read: what arrived first
  std::size_t read_ = 0;  // of them, and not yet erased
};

/// A `nonblocking_byte_stream`. One thread.
class byte_stream {
 public:
  using executor_type = asio::io_context::executor_type;

  byte_stream(asio::io_context& io, intrusive_ptr<byte_channel> in, intrusive_ptr<byte_channel> out)
      : state_(make_intrusive<state>(io, std::move(in), std::move(out))) {}
  byte_stream(byte_stream&&) noexcept = default;
  byte_stream& operator=(byte_stream&&) = delete;
  ~byte_stream() {
    std::error_code ignored;
    if (state_) close(ignored);
  }

  [[nodiscard]] executor_type get_executor() const noexcept { return state_->executor; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& to, Token&& token) {
    return when_possible<std::size_t>(
        state_->read_wait, [s = state_, to](std::error_code& ec) { return s->in->take(to, ec); },
        std::forward<Token>(token));
  }
  template <class Token>
  auto async_write_some(const_buffer_list from, Token&& token) {
    return when_possible<std::size_t>(
        state_->write_wait,
        [s = state_, from](std::error_code& ec) { return s->out->put(from, ec); },
        std::forward<Token>(token));
  }
  std::size_t write_some_nonblocking(const_buffer_list from, std::error_code& ec) noexcept {
    return state_->out->put(from, ec);
  }
  std::size_t read_some_nonblocking(mutable_buffer_list to, std::error_code& ec) {
    return state_->in->take(to, ec);
  }
  template <class Token>
  auto async_wait(asio::socket_base::wait_type what, Token&& token) {
    const bool read = what == asio::socket_base::wait_read;
    return when_possible<void>(
        read ? state_->read_wait : state_->write_wait,
        [s = state_, read](std::error_code& ec) {
          const bool ready = read ? s->in->may_take() : s->out->may_put();
          if (!ready) ec = asio::error::would_block;
        },
        std::forward<Token>(token));
  }
  [[nodiscard]] bool move_to(asio::io_context& io) {
    state_ = make_intrusive<state>(io, state_->in, state_->out);
    return true;
  }
  void announce_to(const intrusive_ptr<arrival_ends>& to) { state_->in->set_bell(to->bell()); }
  void close(std::error_code&) {
    state& s = *state_;
    if (std::exchange(s.closed, true)) return;
    s.out->writer_gone();
    s.in->reader_gone();
    s.read_wait->wake();
    s.write_wait->wake();
  }

 private:
  struct state : ref_counted {
    state(asio::io_context& io, intrusive_ptr<byte_channel> i, intrusive_ptr<byte_channel> o)
        : executor(io.get_executor()),
          read_wait(make_intrusive<weft::detail::pipe_waiter>(io)),
          write_wait(make_intrusive<weft::detail::pipe_waiter>(io)),
          in(std::move(i)),
          out(std::move(o)) {
      in->set_reader(read_wait);
      out->set_writer(write_wait);
    }
    const executor_type executor;
    const intrusive_ptr<weft::detail::pipe_waiter> read_wait, write_wait;
    const intrusive_ptr<byte_channel> in, out;
    bool closed = false;
  };

  template <class Result>
  struct completes {
    using signature = void(std::error_code, Result);
  };

  /// Tries `step` in a turn of its own, and again whenever it is woken, until it does not block.
  template <class Result, class Step, class Token>
  auto when_possible(intrusive_ptr<weft::detail::pipe_waiter> wait, Step step, Token&& token) {
    using signature = typename completes<Result>::signature;
    return asio::async_compose<Token, signature>(
        [s = state_, wait = std::move(wait), step = std::move(step),
         begun = false](auto& self) mutable {
          if (!std::exchange(begun, true)) {
            asio::post(s->executor, std::move(self));
            return;
          }
          std::error_code ec;
          if (s->closed || self.cancelled() != asio::cancellation_type::none) {
            ec = asio::error::operation_aborted;
          }
          if constexpr (std::is_void_v<Result>) {
            if (!ec) step(ec);
            if (ec != asio::error::would_block) return self.complete(ec);
          } else {
            const Result n = ec ? Result() : step(ec);
            if (ec != asio::error::would_block) return self.complete(ec, n);
          }
          auto& w = *wait;
          w.when_woken(std::move(self));
        },
        token, state_->executor);
  }

  intrusive_ptr<state> state_;
};
template <>
struct byte_stream::completes<void> {
  using signature = void(std::error_code);
};

static_assert(nonblocking_byte_stream<byte_stream>);

/// The same bytes, which are written on the I/O thread only, as a cipher's are.
class waiting_byte_stream : byte_stream {
 public:
  using byte_stream::async_read_some;
  using byte_stream::async_write_some;
  using byte_stream::byte_stream;
  using byte_stream::close;
  using byte_stream::executor_type;
  using byte_stream::get_executor;
};

static_assert(weft::byte_stream<waiting_byte_stream>);
static_assert(!nonblocking_byte_stream<waiting_byte_stream>);

}  // namespace weft::sim::detail
