// SPDX-License-Identifier: BSL-1.0
#include "raw.hpp"

#include "../samples.hpp"

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace bench::raw {
namespace {

/// Asio's own default reads at most 64 KiB at a time.
struct all_that_is_left {
  std::size_t operator()(const asio::error_code& error, std::size_t) const {
    return error ? 0 : std::numeric_limits<std::size_t>::max();
  }
};

void prepare(asio::ip::tcp::socket& socket) { socket.set_option(asio::ip::tcp::no_delay(true)); }
void prepare(asio::local::stream_protocol::socket&) {}

template <class Protocol>
asio::awaitable<void> answer(typename Protocol::socket socket, std::size_t bytes) {
  std::vector<char> message(bytes);
  for (;;) {
    asio::error_code gone;
    co_await asio::async_read(socket, asio::buffer(message), all_that_is_left{},
                              asio::redirect_error(asio::use_awaitable, gone));
    if (gone == asio::error::eof) co_return;  // the caller has its samples
    if (gone) throw std::system_error(gone);
    co_await asio::async_write(socket, asio::buffer(message), all_that_is_left{},
                               asio::use_awaitable);
  }
}

template <class Protocol>
asio::awaitable<void> ask(typename Protocol::socket socket, std::size_t bytes, pace& times) {
  std::vector<char> message(bytes, 'x');
  std::vector<char> reply(bytes);
  while (times.more()) {
    times.begin();
    co_await asio::async_write(socket, asio::buffer(message), all_that_is_left{},
                               asio::use_awaitable);
    co_await asio::async_read(socket, asio::buffer(reply), all_that_is_left{}, asio::use_awaitable);
    times.end();
  }
}

/// Runs the coroutine to its end on this thread; throws what it threw.
void finish(asio::io_context& io, asio::awaitable<void> work) {
  std::exception_ptr failure;
  asio::co_spawn(io, std::move(work), [&](std::exception_ptr e) { failure = e; });
  io.run();
  if (failure) std::rethrow_exception(failure);
}

template <class Protocol>
figures echo_over(const typename Protocol::endpoint& at, std::size_t bytes, placement where) {
  asio::io_context io(1);
  typename Protocol::acceptor acceptor(io, at);
  const auto address = acceptor.local_endpoint();
  const child callee(where, side::callee, [&] {
    io.notify_fork(asio::io_context::fork_child);
    auto socket = acceptor.accept();
    prepare(socket);
    finish(io, answer<Protocol>(std::move(socket), bytes));
  });
  typename Protocol::socket socket(io);
  socket.connect(address);
  prepare(socket);
  pace times(std::chrono::milliseconds(bytes > (1U << 22U) ? 1500 : 500));
  finish(io, ask<Protocol>(std::move(socket), bytes, times));
  return times.latency();
}

using tcp = asio::ip::tcp;

asio::awaitable<void> receive(tcp::socket socket, std::size_t bytes) {
  std::vector<char> message(bytes);
  asio::error_code gone;
  // bounded: by the caller, which closes it
  while (!gone) {
    co_await asio::async_read(socket, asio::buffer(message), all_that_is_left{},
                              asio::redirect_error(asio::use_awaitable, gone));
  }
}
asio::awaitable<void> send(tcp::socket& socket, std::size_t bytes) {
  const std::vector<char> message(bytes, 'x');
  asio::error_code gone;
  // bounded: by the measurement, which closes it
  while (!gone) {
    co_await asio::async_write(socket, asio::buffer(message), all_that_is_left{},
                               asio::redirect_error(asio::use_awaitable, gone));
  }
}

}  // namespace

figures echo_beside(std::size_t bytes, placement where) {
  constexpr std::size_t small = 64;
  asio::io_context io(1);
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const auto address = acceptor.local_endpoint();
  const child callee(where, side::callee, [&] {
    io.notify_fork(asio::io_context::fork_child);
    auto socket = acceptor.accept();
    auto stream = acceptor.accept();
    prepare(socket);
    asio::co_spawn(io, receive(std::move(stream), bytes), asio::detached);
    finish(io, answer<tcp>(std::move(socket), small));
  });
  tcp::socket socket(io), stream(io);
  socket.connect(address);
  stream.connect(address);
  prepare(socket);
  pace times(std::chrono::milliseconds(2500));
  asio::co_spawn(io, send(stream, bytes), asio::detached);
  finish(io, [](tcp::socket one, tcp::socket& other, pace& p) -> asio::awaitable<void> {
    co_await ask<tcp>(std::move(one), small, p);
    other.close();
  }(std::move(socket), stream, times));
  return times.latency();
}

figures echo(medium over, std::size_t bytes, placement where) {
  if (over == medium::tcp) {
    return echo_over<asio::ip::tcp>({asio::ip::address_v4::loopback(), 0}, bytes, where);
  }
  const auto path = std::filesystem::temp_directory_path() /
                    ("weft-bench-" + std::to_string(getpid()) + ".socket");
  struct removed_at_end {
    const std::filesystem::path& path;
    ~removed_at_end() {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  } const guard{path};
  return echo_over<asio::local::stream_protocol>({path.string()}, bytes, where);
}

}  // namespace bench::raw
