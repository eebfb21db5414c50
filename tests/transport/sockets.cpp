// SPDX-License-Identifier: BSL-1.0
// What tcp and unix_socket have beyond the conformance suite.
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <doctest/doctest.h>

#include <conformance/rig.hpp>
#include <core/bounded_wait.hpp>
#include <optional>
#include <set>
#include <transport/no_descriptors.hpp>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

using weft::conformance::get;
using weft::conformance::make_frame;
using weft::conformance::rig;
using weft::conformance::start;

namespace {

TEST_CASE("tcp: listens on loopback unless told otherwise") {
  asio::io_context io;
  weft::tcp plain;
  CHECK(plain.listen(io).starts_with("127.0.0.1:"));
  weft::tcp everywhere(weft::tcp::options{.address = "0.0.0.0"});
  CHECK(everywhere.listen(io).starts_with("0.0.0.0:"));
  for (const char* address : {"localhost", "", "300.0.0.1", "203.0.113.77"}) {
    CAPTURE(address);
    weft::tcp wrong(weft::tcp::options{.address = address});
    try {
      const auto endpoint = wrong.listen(io);
      FAIL(endpoint);
    } catch (const weft::rpc_error& e) {
      CHECK(e.error() == weft::errc::invalid_argument);
    }
  }
}

TEST_CASE("tcp: endpoints of both address families") {
  const weft::tcp t;
  CHECK(t.reaches("10.1.2.3:80"));
  CHECK(t.reaches("[::1]:80"));
  CHECK_FALSE(t.reaches("host:80"));
  CHECK_FALSE(t.reaches("10.1.2.3"));
  CHECK_FALSE(t.reaches("10.1.2.3:-1"));
  CHECK_FALSE(t.reaches("10.1.2.3:99999999999"));
}

TEST_CASE("unix_socket: reaches only the same user on the same host") {
  asio::io_context io;
  weft::unix_socket t;
  const auto endpoint = t.listen(io);
  CHECK(t.reaches(endpoint));
  auto elsewhere = endpoint;
  elsewhere[6] = elsewhere[6] == '0' ? '1' : '0';  // first digit of the boot's identity
  CHECK_FALSE(t.reaches(elsewhere));
  CHECK_FALSE(t.reaches(endpoint + std::string(200, 'x')));
}

#ifndef WEFT_TEST_SANITIZED

template <class Future>
void run_until_ready(asio::io_context& io, Future& waiting) {
  const auto no_time = std::chrono::seconds(0);
  for (weft::testing::bounded_wait until("the operation ends");
       until.not_yet(waiting.wait_for(no_time) == std::future_status::ready);) {
    io.run_one_for(std::chrono::milliseconds(100));
  }
}

TEST_CASE_TEMPLATE("sockets: accept outlives a lack of descriptors", T, weft::tcp,
                   weft::unix_socket) {
  asio::io_context io;
  T server, client;
  const auto endpoint = server.listen(io);
  auto accepting = start(io, server.accept(io));
  io.poll();
  std::optional<typename T::connection_type> mine;
  {
    weft::testing::no_descriptors shortage;
    shortage.give_back_one();  // for the client
    auto connecting = start(io, client.connect(io, endpoint));
    run_until_ready(io, connecting);
    mine.emplace(get(connecting).value());
    io.poll();
    CHECK(accepting.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  }
  run_until_ready(io, accepting);
  CHECK(get(accepting).has_value());
}

#endif  // WEFT_TEST_SANITIZED

TEST_CASE_TEMPLATE("sockets: a coroutine that waits to accept ends with close", T, weft::tcp,
                   weft::unix_socket) {
  asio::io_context io;
  T server;
  static_cast<void>(server.listen(io));
  auto accepting = start(io, server.accept(io));
  io.poll();
  server.close();
  io.run();  // ends, for nothing waits any more
  CHECK(get(accepting).error() == weft::errc::closed);
}

/// Sockets of this process that one which it starts would inherit.
std::set<int> inherited_sockets() {
  std::set<int> out;
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    struct ::stat is{};
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0 && ::fstat(fd, &is) == 0 && S_ISSOCK(is.st_mode)) {
      out.insert(fd);
    }
  }
  return out;
}

TEST_CASE_TEMPLATE("sockets: none is inherited by a process that anybody starts", T, weft::tcp,
                   weft::unix_socket) {
  const auto before = inherited_sockets();
  rig<T> r;
  [[maybe_unused]] const auto both = r.connect();
  CHECK(inherited_sockets() == before);
}

TEST_CASE_TEMPLATE("sockets: garbage from a stranger ends its connection only", T, weft::tcp,
                   weft::unix_socket) {
  rig<T> r;
  auto [client, server] = r.connect();
  auto [stranger, victim] = r.connect();
  stranger->send_bytes(std::vector<std::byte>(100'000, std::byte{0x55}));
  auto reading = start(r.server_io(), victim->read_for_ever());
  CHECK(get(reading).error() == weft::errc::protocol_error);
  CHECK(victim->allocated == 0);
  victim->close();
  client->send(make_frame(5, 50));
  server->receive(1);
  CHECK(weft::conformance::is_intact(server->received.at(0), 5));
}

}  // namespace
