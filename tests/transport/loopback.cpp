// SPDX-License-Identifier: BSL-1.0
#include <weft/transport/loopback.hpp>

#include <doctest/doctest.h>

#include <conformance/rig.hpp>

using weft::conformance::is_intact;
using weft::conformance::make_frame;

namespace {

struct to_itself {
  static constexpr std::string_view name = "loopback";
  using connection_type = weft::loopback;
  std::string listen(asio::io_context&) { return {}; }
  bool reaches(std::string_view) const { return false; }
  asio::awaitable<connection_type> connect(asio::io_context& io, std::string) {
    co_return weft::loopback(io);
  }
  asio::awaitable<connection_type> accept(asio::io_context& io) { co_return weft::loopback(io); }
  void close() noexcept {}
};

TEST_CASE("loopback: what is written is what is read, memory and all") {
  asio::io_context io;
  weft::conformance::end<to_itself> self(io, weft::loopback(io));
  auto f = make_frame(0, 10, {1000});
  const auto* const place = f.blobs[0].data();
  self.send(std::move(f));
  for (std::uint64_t i = 1; i < 3000; ++i) self.send(make_frame(i, 10));
  auto reading = weft::conformance::start(io, self.read_until(3000));
  io.run();
  REQUIRE(weft::conformance::get(reading).has_value());
  CHECK(self.received[0].blobs[0].data() == place);
  for (std::uint64_t i = 0; i < 3000; ++i) REQUIRE(is_intact(self.received[i], i));
}

TEST_CASE("loopback: close ends its own wait with closed") {
  asio::io_context io;
  weft::conformance::end<to_itself> self(io, weft::loopback(io));
  auto reading = weft::conformance::start(io, self.read_for_ever());
  asio::post(io, [&] { self.close(); });
  io.run();
  auto ended = weft::conformance::get(reading);
  REQUIRE_FALSE(ended.has_value());
  CHECK(ended.error() == weft::errc::closed);
  CHECK(self.now() == weft::write_status::closed);
}

}  // namespace
