// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/framed.hpp>

#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <doctest/doctest.h>

#include <conformance/rig.hpp>
#include <cstddef>
#include <memory>
#include <utility>

using weft::conformance::get;
using weft::conformance::is_intact;
using weft::conformance::make_frame;
using weft::conformance::start;

namespace {

using socket_type = asio::local::stream_protocol::socket;

/// What a counting_stream was asked for, and what it shall do.
struct journal {
  std::size_t writes = 0;
  std::size_t reads = 0;
  std::size_t most_per_write = SIZE_MAX;
  std::error_code fail_with;
};

/// A user's stream that writes at once, over a socket.
class counting_stream {
 public:
  using executor_type = socket_type::executor_type;
  counting_stream(socket_type next, journal& j) : next_(std::move(next)), journal_(&j) {}

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    ++journal_->reads;
    return next_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return next_.async_write_some(buffers, std::forward<Token>(token));
  }
  std::size_t write_some_nonblocking(weft::const_buffer_list buffers, std::error_code& ec) {
    ++journal_->writes;
    ec = journal_->fail_with;
    if (ec) return 0;
    next_.non_blocking(true);
    std::vector<std::byte> flat(std::min(asio::buffer_size(buffers), journal_->most_per_write));
    asio::buffer_copy(asio::buffer(flat), buffers);
    return next_.write_some(asio::buffer(flat), ec);
  }
  template <class Token>
  auto async_wait(asio::socket_base::wait_type what, Token&& token) {
    return next_.async_wait(what, std::forward<Token>(token));
  }
  socket_type& lowest_layer() { return next_; }
  executor_type get_executor() { return next_.get_executor(); }

 private:
  socket_type next_;
  journal* journal_;
};

/// A transport in name only, for conformance::end.
template <class Connection>
struct over {
  static constexpr std::string_view name = "test";
  using connection_type = Connection;
  std::string listen(asio::io_context&) { return {}; }
  bool reaches(std::string_view) const { return false; }
  asio::awaitable<Connection> connect(asio::io_context&, std::string) { throw 1; }
  asio::awaitable<Connection> accept(asio::io_context&) { throw 1; }
  void close() noexcept {}
};
using counted = weft::conformance::end<over<weft::framed<counting_stream>>>;
using plain = weft::conformance::end<over<weft::framed<socket_type>>>;

struct pair {
  asio::io_context io;
  journal log;
  socket_type a{io};
  socket_type b{io};
  pair() { asio::local::connect_pair(a, b); }
  std::unique_ptr<counted> counting() {
    return std::make_unique<counted>(io, weft::framed(counting_stream(std::move(a), log)));
  }
  std::unique_ptr<plain> other() { return std::make_unique<plain>(io, weft::framed(std::move(b))); }
};

TEST_CASE("framed: a frame of head and tensors is one write, and small frames share a read") {
  pair p;
  auto sender = p.other();
  auto reader = p.counting();
  for (std::uint64_t i = 0; i < 5; ++i) sender->send(make_frame(i, 20, {30, 0, 40}));
  auto reading = start(p.io, reader->read_until(5));
  p.io.run();
  REQUIRE(get(reading).has_value());
  CHECK(p.log.reads == 1);
  reader->send(make_frame(1, 20, {30, 0, 40}));
  CHECK(p.log.writes == 1);
  CHECK(reader->now() == weft::write_status::everything);
}

TEST_CASE("framed: a stream that takes little at a time gets everything, in order") {
  pair p;
  p.log.most_per_write = 7;
  auto sender = p.counting();
  auto reader = p.other();
  for (std::uint64_t i = 0; i < 20; ++i) sender->send(make_frame(i, i, {i, 0, 2 * i}));
  auto reading = start(p.io, reader->read_until(20));
  p.io.run();
  REQUIRE(get(reading).has_value());
  for (std::uint64_t i = 0; i < 20; ++i) CHECK(is_intact(reader->received[i], i));
  CHECK(sender->now() == weft::write_status::everything);
}

TEST_CASE("framed: a write that fails ends the read with peer_died") {
  pair p;
  auto sender = p.counting();
  auto reader = p.other();
  auto reading = start(p.io, sender->read_for_ever());
  p.io.poll();
  p.log.fail_with = asio::error::broken_pipe;
  sender->send(make_frame(1, 1));
  CHECK(sender->now() == weft::write_status::closed);
  sender->send(make_frame(1, 1));
  CHECK(p.log.writes == 1);
  p.io.restart();
  p.io.run();
  CHECK(get(reading).error() == weft::errc::peer_died);
}

TEST_CASE("framed: what the peer sent before it died is read, though writing to it failed") {
  pair p;
  auto survivor = p.counting();
  {
    auto dying = p.other();
    for (std::uint64_t i = 0; i < 3; ++i) dying->send(make_frame(i, 5));
    dying->close();
    p.io.run();
  }
  survivor->send(make_frame(9, 9));
  CHECK(survivor->now() == weft::write_status::closed);
  p.io.restart();
  auto reading = start(p.io, survivor->read_for_ever());
  p.io.run();
  CHECK(get(reading).error() == weft::errc::peer_died);
  CHECK(survivor->received.size() == 3);
}

TEST_CASE("framed: a connection that goes away unclosed takes its descriptor with it") {
  pair p;
  auto left = p.other();
  p.counting().reset();
  auto reading = start(p.io, left->read_for_ever());
  p.io.run();
  CHECK(get(reading).error() == weft::errc::peer_died);
}

TEST_CASE("framed: with its io_context a waiting coroutine and its connection end") {
  journal log;
  auto io = std::make_unique<asio::io_context>();
  socket_type a(*io), b(*io);
  asio::local::connect_pair(a, b);
  auto waits = std::make_unique<plain>(*io, weft::framed(std::move(a)));
  auto reading = start(*io, waits->read_for_ever());
  io->poll();
  waits->close();
  waits.reset();  // the posted release still holds the stream
  b.close();
  io.reset();
  CHECK(reading.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK_THROWS_AS(reading.get(), std::future_error);  // broken promise: the coroutine is gone
}

}  // namespace
