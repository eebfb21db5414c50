// SPDX-License-Identifier: BSL-1.0
// What every transport must do, yours too: header-only, needs doctest and this folder.
//
//   #include <conformance/suite.hpp>      // weft::conformance in CMake, or -I tests
//   TEST_CASE("my_transport: conforms") { weft::conformance::check<my_transport>(); }
//
// A transport that is not default-constructible, or whose two sides share something, specialises
// `weft::conformance::sides` (rig.hpp), and one in virtual time gives them a `step`. Nothing here
// depends on how long anything takes: a wait that would never end fails the test after `patience`.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <conformance/rig.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace weft::conformance {

template <class T>
inline constexpr bool moves_bytes = false;
template <class Stream>
inline constexpr bool moves_bytes<framed<Stream>> = true;

/// The error that an operation ended with; success is one too many.
template <class T>
error error_of(std::future<outcome<T>>& waiting) {
  auto result = get(waiting);
  CHECK_FALSE(result.has_value());
  return result ? error() : result.error();
}
template <class T>
error failure_of(asio::io_context& io, asio::awaitable<T> a) {
  auto waiting = start(io, std::move(a));
  return error_of(waiting);
}

template <transport T>
void endpoints() {
  rig<T> r;
  const std::string here = r.server_transport().listen(r.server_io());
  CHECK(std::all_of(here.begin(), here.end(), [](char c) { return c > ' ' && c < 0x7f; }));
  CHECK(r.client_transport().reaches(here));
  for (const char* other : {"", ":", "nonsense", "nonsense:1", "127.0.0.1:", "127.0.0.1:0",
                            "127.0.0.1:65536", "127.0.0.1:1x", "inproc:", "unix:", "\x01\xff"}) {
    CAPTURE(other);
    CHECK_FALSE(r.client_transport().reaches(other));
    failure_of(r.client_io(), r.client_transport().connect(r.client_io(), other));
  }
  r.server_transport().close();
  // Accepting ends, and once it has, nobody is reached.
  CHECK(failure_of(r.server_io(), r.server_transport().accept(r.server_io())) == errc::closed);
  drain(r.server_io());
  CHECK(failure_of(r.client_io(), r.client_transport().connect(r.client_io(), here)) ==
        errc::peer_died);
}

template <transport T>
void close_wakes_accept() {
  rig<T> r;
  auto [client, server] = r.connect();
  auto waiting = start(r.server_io(), r.server_transport().accept(r.server_io()));
  drain(r.server_io());
  r.server_transport().close();
  r.server_transport().close();
  CHECK(error_of(waiting) == errc::closed);
  client->send(make_frame(1, 10));
  server->receive(1);
  CHECK(is_intact(server->received.at(0), 1));
}

template <transport T>
void order() {
  rig<T> r;
  auto [client, server] = r.connect();
  constexpr std::uint64_t count = 5000;
  auto reading = start(r.server_io(), server->read_until(count));
  for (std::uint64_t i = 0; i < count; ++i) client->send(make_frame(i, (i * 37) % 2000));
  CHECK(get(reading).has_value());
  REQUIRE(server->received.size() == count);
  std::size_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) wrong += is_intact(server->received[i], i) ? 0 : 1;
  CHECK(wrong == 0);
  CHECK(server->progressed > 0);
}

template <transport T>
void sizes() {
  rig<T> r;
  auto [client, server] = r.connect();
  const std::vector<std::vector<std::size_t>> blobs = {{},
                                                       {0},
                                                       {1},
                                                       {0, 0, 0},
                                                       {0, 1, 0, 7, 4095, 0, 3, 0},
                                                       {65535, 65536, 65537, 0},
                                                       {(3u << 20) + 13, 1, (1u << 20) + 1},
                                                       std::vector<std::size_t>(300, 11),
                                                       {20u << 20}};
  const std::vector<std::size_t> payloads = {0, 1, 959, 960, 961, 65472, 65536, 70001, 3u << 20};
  std::uint64_t sent = 0;
  for (const auto& b : blobs) {
    for (const std::size_t p : payloads) {
      if (!b.empty() && b[0] > (2u << 20) && p > 1) continue;
      client->send(make_frame(sent++, p, b));
    }
  }
  server->receive(sent);
  for (std::uint64_t i = 0; i < sent; ++i) {
    CAPTURE(i);
    CHECK(is_intact(server->received.at(i), i));
  }
  client->await_written();
}

template <transport T>
void both_ways() {
  rig<T> r;
  auto [client, server] = r.connect();
  constexpr std::uint64_t count = 4;
  for (std::uint64_t i = 0; i < count; ++i) {
    client->send(make_frame(i, 100, {8u << 20}));
    server->send(make_frame(i, 100, {8u << 20}));
  }
  auto other = start(r.client_io(), client->read_until(count));
  server->receive(count);
  CHECK(get(other).has_value());
  for (std::uint64_t i = 0; i < count; ++i) {
    CHECK(is_intact(client->received.at(i), i));
    CHECK(is_intact(server->received.at(i), i));
  }
}

template <transport T>
void many_writers() {
  rig<T> r;
  auto [client, server] = r.connect();
  constexpr std::uint64_t writers = 4, each = 500;
  std::vector<std::thread> threads;
  threads.reserve(writers);
  for (std::uint64_t w = 0; w < writers; ++w) {
    threads.emplace_back([c = client, w] {
      for (std::uint64_t i = 0; i < each; ++i) c->send(make_frame(w * each + i, 50 + i));
    });
  }
  server->receive(writers * each);
  for (auto& t : threads) t.join();
  std::vector<std::uint64_t> next(writers, 0);
  std::size_t wrong = 0;
  for (const frame& f : server->received) {
    const std::uint64_t w = f.header.call / each;
    if (w >= writers || !is_intact(f, w * each + next[w]++)) ++wrong;
  }
  CHECK(wrong == 0);
}

/// Frames of 1 MiB that no transport holds on the way.
inline constexpr std::uint64_t more_than_any_buffer = 80;

/// A peer that does not read: writing blocks, is bounded, and goes on where it stopped.
template <transport T>
void blocked_writer() {
  rig<T> r;
  auto [client, server] = r.connect();
  const frame big = make_frame(0, 0, {1u << 20});
  std::uint64_t sent = 0;
  while (sent < more_than_any_buffer) client->send(copy(big, sent++));
  drain(r.client_io());
  CHECK(client->now() == write_status::blocked);
  for (int i = 0; i < 3; ++i) client->send(make_frame(sent++, 3, {77, 0, 1}));
  server->receive(sent);
  client->await_written();
  for (std::uint64_t i = 0; i < sent; ++i) CHECK(server->received.at(i).header.call == i);
  CHECK(is_intact(server->received.back(), sent - 1));
}

template <transport T>
void close_after_frames() {
  rig<T> r;
  auto [client, server] = r.connect();
  constexpr std::uint64_t count = 100;
  for (std::uint64_t i = 0; i < count; ++i) client->send(make_frame(i, 64, {5}));
  client->await_written();
  client->close();
  CHECK(failure_of(r.server_io(), server->read_for_ever()) == errc::peer_died);
  CHECK(server->received.size() == count);
  // Writing to the dead peer fails sooner or later, and never blocks for ever.
  for (int i = 0; i < 1000 && server->now() != write_status::closed; ++i) {
    server->send(make_frame(1, 1000, {1u << 20}));
    server->await_written();
  }
  CHECK(server->now() == write_status::closed);
}

/// Who waits until nothing is unsent may close: what a connection took from the link, but has not
/// written, is not forgotten.
template <transport T>
void accounts_for_unsent() {
  rig<T> r;
  auto [client, server] = r.connect();
  CHECK(client->unsent() == 0);
  client->send(make_frame(0, 0, {more_than_any_buffer << 20}));
  drain(r.client_io());
  if (moves_bytes<typename T::connection_type>) {
    CHECK(client->now() == write_status::blocked);
    CHECK(client->unsent() == 1);
  }
  server->receive(1);
  client->await_written();
  CHECK(client->unsent() == 0);
  constexpr std::uint64_t count = 100;
  auto reading = start(r.server_io(), server->read_for_ever());
  for (std::uint64_t i = 1; i <= count; ++i) client->send(make_frame(i, 64, {5000}));
  CHECK(comes_true(r.client_io(), [c = client] { return c->unsent() == 0; }));
  client->close();
  CHECK(client->unsent() == 0);
  CHECK(error_of(reading) == errc::peer_died);
  CHECK(server->received.size() == 1 + count);
}

template <transport T>
void close_wakes_waits() {
  rig<T> r;
  auto [client, server] = r.connect();
  const frame big = make_frame(0, 0, {1u << 20});
  auto reading = start(r.client_io(), client->read_for_ever());
  for (std::uint64_t i = 0; i < more_than_any_buffer; ++i) client->send(copy(big, i));
  drain(r.client_io());
  client->close();
  client->close();
  CHECK(error_of(reading) == errc::closed);
  CHECK(error_of(client->writing()) == errc::closed);
  client->send(make_frame(1, 1));
  CHECK(client->now() == write_status::closed);
  CHECK(failure_of(r.client_io(), client->read_for_ever()) == errc::closed);
  CHECK(failure_of(r.server_io(), server->read_for_ever()) == errc::peer_died);
}

/// A cancelled read loses nothing.
template <transport T>
void cancelled_read() {
  rig<T> r;
  auto [client, server] = r.connect();
  asio::cancellation_signal stop;
  std::promise<outcome<void>> result;
  auto waiting = result.get_future();
  asio::co_spawn(r.server_io(), settle(server->read_for_ever(), std::move(result)),
                 asio::bind_cancellation_slot(stop.slot(), [](std::exception_ptr) {}));
  drain(r.server_io());
  asio::post(r.server_io(), [&] { stop.emit(asio::cancellation_type::terminal); });
  CHECK(error_of(waiting) == errc::cancelled);
  drain(r.server_io());
  client->send(make_frame(7, 70, {700}));
  server->receive(1);
  CHECK(is_intact(server->received.at(0), 7));
}

/// What the link says ends the read with the link's error.
template <transport T>
void refusing_sink() {
  rig<T> r;
  auto [client, server] = r.connect();
  server->refuse_after = 3;
  for (std::uint64_t i = 0; i < 10; ++i) client->send(make_frame(i, 10));
  CHECK(failure_of(r.server_io(), server->read_for_ever()) == errc::shutting_down);
  CHECK(server->received.size() == 3);
  server->close();
  CHECK(failure_of(r.client_io(), client->read_for_ever()) == errc::peer_died);
}

template <transport T>
void many_connections() {
  rig<T> r;
  constexpr std::uint64_t count = 50;
  auto [silent, listening] = r.connect();  // says nothing, costs nobody anything
  auto mute = start(r.server_io(), listening->read_for_ever());
  std::vector<std::pair<end<T>*, end<T>*>> pairs;
  pairs.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) pairs.push_back(r.connect());
  for (std::uint64_t i = 0; i < count; ++i) pairs[i].first->send(make_frame(i, i, {i}));
  for (std::uint64_t i = 0; i < count; ++i) {
    pairs[i].second->receive(1);
    CHECK(is_intact(pairs[i].second->received.at(0), i));
    pairs[i].second->send(make_frame(i, i));
  }
  for (std::uint64_t i = 0; i < count; ++i) pairs[i].first->receive(1);
  CHECK(listening->progressed == 0);
  CHECK(listening->allocated == 0);
  listening->close();
  CHECK(error_of(mute) == errc::closed);
}

/// Bytes that are no frames: nothing is delivered or allocated, the read ends with a named error.
template <transport T>
void bad_bytes() {
  const auto end_of = [](std::vector<std::byte> bytes) {
    rig<T> r;
    auto [client, server] = r.connect();
    client->send(make_frame(1, 5));
    client->send_bytes(bytes);
    client->await_written();
    client->close();
    error e = failure_of(r.server_io(), server->read_for_ever());
    CHECK(server->received.size() == 1);
    CHECK(server->allocated == 0);
    return e;
  };
  CHECK(end_of(std::vector<std::byte>(1000, std::byte{'x'})) == errc::protocol_error);
  const frame good = make_frame(2, 100, {50});
  const auto changed = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    std::vector<std::byte> b(good.head.view().begin(), good.head.view().end());
    std::memcpy(b.data() + at, &value, size);
    return b;
  };
  CHECK(end_of(changed(4, 9, 1)) == errc::version_mismatch);
  CHECK(end_of(changed(5, 31, 1)) == errc::protocol_error);
  CHECK(end_of(changed(50, 0xffff, 2)) == errc::message_too_large);
  CHECK(end_of(changed(52, 0xffffffff, 4)) == errc::message_too_large);
  CHECK(end_of(changed(52, 0, 4)) == errc::protocol_error);
  CHECK(end_of(changed(56, ~std::uint64_t{0}, 8)) == errc::message_too_large);
  CHECK(end_of(changed(56, std::uint64_t{256} << 20, 8)) == errc::peer_died);  // allowed, not sent
  CHECK(end_of(changed(164, ~std::uint64_t{0}, 8)) == errc::message_too_large);
  for (const std::size_t size : {1u, 63u, 64u, 65u, 171u}) {
    CAPTURE(size);
    CHECK(end_of(std::vector<std::byte>(good.head.data(), good.head.data() + size)) ==
          errc::peer_died);
  }
}

/// All of it. Call it inside a TEST_CASE.
template <class T>
void check() {
  static_assert(assert_transport<T>());
  SUBCASE("endpoints: text, judged, refused when nobody listens") { endpoints<T>(); }
  SUBCASE("transport: close ends accept and spares connections") { close_wakes_accept<T>(); }
  SUBCASE("frames: arrive in the order of sending") { order<T>(); }
  SUBCASE("frames: any sizes, also empty and larger than buffers") { sizes<T>(); }
  SUBCASE("frames: both ways at once without deadlock") { both_ways<T>(); }
  if constexpr (!stepped<T>) {
    SUBCASE("try_write: from several threads") { many_writers<T>(); }
  }
  SUBCASE("try_write: blocked by a peer that does not read, then goes on") { blocked_writer<T>(); }
  SUBCASE("close: the other side gets all frames, then peer_died") { close_after_frames<T>(); }
  SUBCASE("close: loses nothing once no frame is unsent") { accounts_for_unsent<T>(); }
  SUBCASE("close: wakes both waits with closed") { close_wakes_waits<T>(); }
  SUBCASE("read: cancelled without loss") { cancelled_read<T>(); }
  SUBCASE("read: ends with the sink's error") { refusing_sink<T>(); }
  SUBCASE("connections: many, one silent") { many_connections<T>(); }
  if constexpr (moves_bytes<typename T::connection_type>) {
    SUBCASE("bad bytes: a named error, nothing allocated") { bad_bytes<T>(); }
  }
}

}  // namespace weft::conformance
