// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/any_transport.hpp>
#include <weft/transport/inproc.hpp>

#include <doctest/doctest.h>

#include <conformance/rig.hpp>
#include <memory>
#include <optional>
#include <string_view>

using weft::conformance::end;
using weft::conformance::make_frame;

namespace {

TEST_CASE("inproc: tensors change hands in place") {
  asio::io_context io;
  auto [a, b] = weft::inproc::make_pair(io, io);
  end<weft::inproc> one(io, std::move(a)), other(io, std::move(b));
  auto f = make_frame(1, 10, {1000});
  const auto* const place = f.blobs[0].data();
  const auto owner = f.blobs[0].owner();
  one.send(std::move(f));
  auto reading = weft::conformance::start(io, other.read_until(1));
  io.run();
  REQUIRE(weft::conformance::get(reading).has_value());
  CHECK(other.received[0].blobs[0].data() == place);
  CHECK(other.received[0].blobs[0].owner() == owner);
}

TEST_CASE("inproc: hubs are worlds of their own") {
  asio::io_context io;
  weft::inproc here, there;
  const auto endpoint = there.listen(io);
  CHECK(there.reaches(endpoint));
  CHECK_FALSE(here.reaches(endpoint));
  auto hub = std::make_shared<weft::inproc::hub>();
  weft::inproc first(hub), second(hub);
  const auto one = first.listen(io), two = second.listen(io);
  CHECK(one != two);
  CHECK(first.reaches(two));
  CHECK(second.reaches(one));
}

TEST_CASE("inproc: a connection that nobody accepted sees the listener's end") {
  asio::io_context io;
  auto hub = std::make_shared<weft::inproc::hub>();
  std::optional<end<weft::inproc>> mine;
  weft::inproc client(hub);
  auto server = std::make_unique<weft::inproc>(hub);
  auto connecting = weft::conformance::start(io, client.connect(io, server->listen(io)));
  io.run();
  mine.emplace(io, weft::conformance::get(connecting).value());
  mine->send(make_frame(1, 1));
  server.reset();
  auto reading = weft::conformance::start(io, mine->read_for_ever());
  io.restart();
  io.run();
  CHECK(weft::conformance::get(reading).error() == weft::errc::peer_died);
}

/// Says when its coroutine is destroyed.
asio::awaitable<void> read_with(end<weft::inproc>& e, std::shared_ptr<int> witness) {
  const auto held = std::move(witness);
  co_await e.read_for_ever();
}

TEST_CASE("inproc: a coroutine that still waits dies with its io_context") {
  auto witness = std::make_shared<int>(0);
  asio::io_context other_io;
  auto io = std::make_unique<asio::io_context>();
  auto [a, b] = weft::inproc::make_pair(*io, other_io);
  {
    end<weft::inproc> one(*io, std::move(a)), other(other_io, std::move(b));
    asio::co_spawn(*io, read_with(one, witness), asio::detached);
    io->poll();
    CHECK(witness.use_count() == 2);
    io.reset();
    CHECK(witness.use_count() == 1);
    other.send(make_frame(1, 1));  // wakes nobody, touches nothing that is gone
    other.close();
  }
}

TEST_CASE("inproc: many frames wake a waiting reader once") {
  asio::io_context io, other_io;
  auto [a, b] = weft::inproc::make_pair(io, other_io);
  end<weft::inproc> one(io, std::move(a)), other(other_io, std::move(b));
  auto reading = weft::conformance::start(other_io, other.read_until(100));
  other_io.poll();
  for (std::uint64_t i = 0; i < 100; ++i) one.send(make_frame(i, 1));
  other_io.restart();
  const auto handlers = other_io.poll();
  CHECK(other.received.size() == 100);
  CHECK(other.progressed == 1);
  CHECK(handlers <= 2);
  CHECK(weft::conformance::get(reading).has_value());
}

/// A transport that cannot be moved, as a class with a mutex cannot.
struct fixed : private weft::inproc {
  fixed() = default;
  fixed(const fixed&) = delete;
  static constexpr std::string_view name = "fixed";
  using inproc::accept;
  using inproc::close;
  using inproc::connect;
  using inproc::connection_type;
  using inproc::listen;
  using inproc::reaches;
};

TEST_CASE("inproc: a transport of one's own need not be movable") {
  static_assert(weft::assert_transport<fixed>());
  const auto all = weft::detail::transports_at<fixed>({});
  REQUIRE(all.size() == 1);
  CHECK(all[0]->name() == "fixed");
}

}  // namespace
