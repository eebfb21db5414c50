// SPDX-License-Identifier: BSL-1.0
// For each concept of transport/concepts.hpp a minimal good model, and one bad in one way only.
#include <weft/transport/concepts.hpp>
#include <weft/transport/framed.hpp>

#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <doctest/doctest.h>

namespace {

struct good_connection {
  weft::write_status try_write(weft::outbox&) noexcept { return weft::write_status::closed; }
  asio::awaitable<void> writable() { co_return; }
  asio::awaitable<void> read(weft::frame_sink&) { co_return; }
  void close() noexcept {}
  asio::any_io_executor get_executor() { return {}; }
};
struct throwing_write : good_connection {
  weft::write_status try_write(weft::outbox&) { return weft::write_status::closed; }
};
struct bool_write : good_connection {
  bool try_write(weft::outbox&) noexcept { return false; }
};
struct blocking_wait : good_connection {
  void writable() {}
};
struct counting_read : good_connection {
  asio::awaitable<int> read(weft::frame_sink&) { co_return 1; }
};
struct throwing_close : good_connection {
  void close() {}
};
struct placeless : good_connection {
  int get_executor() { return 0; }
};
struct counting_unsent : good_connection {
  std::size_t unsent_frames() const noexcept { return 3; }
};
struct throwing_count : good_connection {
  std::size_t unsent_frames() const { return 3; }
};
struct pinned_down : good_connection {
  pinned_down(pinned_down&&) = delete;
};

static_assert(weft::connection<good_connection>);
static_assert(!weft::connection_writes<throwing_write> && !weft::connection<throwing_write>);
static_assert(!weft::connection_writes<bool_write> && !weft::connection<bool_write>);
static_assert(!weft::connection_waits_to_write<blocking_wait> && !weft::connection<blocking_wait>);
static_assert(!weft::connection_reads<counting_read> && !weft::connection<counting_read>);
static_assert(!weft::connection_closes<throwing_close> && !weft::connection<throwing_close>);
static_assert(!weft::connection_has_executor<placeless> && !weft::connection<placeless>);
static_assert(!weft::connection<pinned_down>);
static_assert(!weft::connection_counts_unsent<good_connection>);
static_assert(weft::connection_counts_unsent<counting_unsent>);
static_assert(!weft::connection_counts_unsent<throwing_count>);

struct good_transport {
  static constexpr std::string_view name = "good";
  using connection_type = good_connection;
  std::string listen(asio::io_context&) { return {}; }
  bool reaches(std::string_view) const { return false; }
  asio::awaitable<connection_type> connect(asio::io_context&, std::string) {
    co_return good_connection{};
  }
  asio::awaitable<connection_type> accept(asio::io_context&) { co_return good_connection{}; }
  void close() noexcept {}
};
struct nameless : good_transport {
  static constexpr int name = 3;
};
struct foreign_connection : good_transport {
  using connection_type = int;
};
struct silent_listen : good_transport {
  void listen(asio::io_context&) {}
};
struct mutable_reaches : good_transport {
  bool reaches(std::string_view) { return false; }
};
struct other_connect : good_transport {
  asio::awaitable<counting_read> connect(asio::io_context&, std::string) {
    co_return counting_read{};
  }
};
struct blocking_accept : good_transport {
  connection_type accept(asio::io_context&) { return {}; }
};
struct lasting : good_transport {
  void close() {}
};

static_assert(weft::transport<good_transport> && weft::assert_transport<good_transport>());
static_assert(!weft::transport_has_name<nameless> && !weft::transport<nameless>);
static_assert(!weft::transport_has_connection<foreign_connection>);
static_assert(!weft::transport<foreign_connection>);
static_assert(!weft::transport_listens<silent_listen> && !weft::transport<silent_listen>);
static_assert(!weft::transport_judges<mutable_reaches> && !weft::transport<mutable_reaches>);
static_assert(!weft::transport_connects<other_connect> && !weft::transport<other_connect>);
static_assert(!weft::transport_accepts<blocking_accept> && !weft::transport<blocking_accept>);
static_assert(!weft::transport_closes<lasting> && !weft::transport<lasting>);
static_assert(!weft::transport<int>);

template <class Token>
auto complete_with_size(Token&& token) {
  return asio::async_initiate<Token, void(std::error_code, std::size_t)>([](auto&&) {}, token);
}

struct good_stream {
  using executor_type = asio::io_context::executor_type;
  template <class Buffers, class Token>
  auto async_read_some(const Buffers&, Token&& token) {
    return complete_with_size(std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers&, Token&& token) {
    return complete_with_size(std::forward<Token>(token));
  }
  void close(std::error_code&) {}
  executor_type get_executor() { return io->get_executor(); }
  asio::io_context* io;
};
struct single_buffer_reads : good_stream {
  template <class Token>
  auto async_read_some(asio::mutable_buffer, Token&& token) {
    return complete_with_size(std::forward<Token>(token));
  }
};
struct errorless_writes : good_stream {
  template <class Buffers, class Token>
  auto async_write_some(const Buffers&, Token&& token) {
    return asio::async_initiate<Token, void(std::size_t)>([](auto&&) {}, token);
  }
};
struct endless : good_stream {
  void close(std::error_code&) = delete;
};
struct layered : endless {
  good_stream& lowest_layer() { return next; }
  good_stream next;
};
struct writes_now : good_stream {
  std::size_t write_some_nonblocking(weft::const_buffer_list, std::error_code&) { return 0; }
  template <class Token>
  auto async_wait(asio::socket_base::wait_type, Token&& token) {
    return asio::async_initiate<Token, void(std::error_code)>([](auto&&) {}, token);
  }
};

static_assert(weft::byte_stream<good_stream> && weft::assert_byte_stream<good_stream>());
static_assert(!weft::stream_reads<single_buffer_reads> && !weft::byte_stream<single_buffer_reads>);
static_assert(!weft::stream_writes<errorless_writes> && !weft::byte_stream<errorless_writes>);
static_assert(!weft::stream_closes<endless> && !weft::byte_stream<endless>);
static_assert(weft::byte_stream<layered>);
static_assert(!weft::nonblocking_byte_stream<good_stream>);
static_assert(weft::nonblocking_byte_stream<writes_now>);

TEST_CASE("byte_stream: Asio's sockets are, and framed makes connections of all") {
  CHECK(weft::byte_stream<asio::ip::tcp::socket>);
  CHECK(weft::byte_stream<asio::local::stream_protocol::socket>);
  CHECK(weft::connection<weft::framed<asio::ip::tcp::socket>>);
  CHECK(weft::connection<weft::framed<good_stream>>);
  CHECK(weft::connection<weft::framed<layered>>);
  CHECK(weft::connection<weft::framed<writes_now>>);
  CHECK_FALSE(weft::byte_stream<asio::ip::tcp::acceptor>);
}

}  // namespace
