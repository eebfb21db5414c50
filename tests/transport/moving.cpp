// SPDX-License-Identifier: BSL-1.0
// Connections that begin on one io_context and live on another, while the other side writes.
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <asio/co_spawn.hpp>
#include <asio/use_future.hpp>
#include <doctest/doctest.h>

#include <conformance/rig.hpp>
#include <optional>
#include <thread>
#include <utility>

namespace {

using weft::conformance::is_intact;
using weft::conformance::make_frame;

struct collector final : weft::frame_sink {
  weft::limits limit;
  std::vector<weft::frame> frames;
  const weft::limits& bounds() const noexcept override { return limit; }
  weft::expected<weft::blob> allocate(std::size_t bytes) override {
    return weft::conformance::make_blob(bytes);
  }
  weft::expected<void> frame_arrived(weft::frame&& f) override {
    frames.push_back(std::move(f));
    return {};
  }
  void progress() noexcept override {}
};

template <class C>
asio::awaitable<void> read_frames(C& connection, collector& into, std::size_t count) {
  // bounded: the writer sends as many
  while (into.frames.size() < count) co_await connection.read(into);
}

template <class T>
struct connected {
  asio::io_context first, second, other;
  T transport;
  std::optional<typename T::connection_type> here, there;

  connected() {
    const auto endpoint = transport.listen(first);
    auto accept = [this]() -> asio::awaitable<void> {
      here.emplace(co_await transport.accept(first));
    };
    auto connect = [this, endpoint]() -> asio::awaitable<void> {
      there.emplace(co_await transport.connect(other, endpoint));
    };
    asio::co_spawn(first, accept(), asio::detached);
    asio::co_spawn(other, connect(), asio::detached);
    std::thread connecting([this] { other.run(); });
    first.run();
    connecting.join();
  }
  ~connected() {
    here->close();
    there->close();
    transport.close();
    for (auto* io : {&first, &second, &other}) {
      io->restart();
      io->poll();
    }
  }
};

TEST_CASE_TEMPLATE("moving: what was sent before, meanwhile and after arrives, in order", T,
                   weft::inproc, weft::tcp, weft::unix_socket) {
  constexpr std::uint64_t count = 40;
  for (int round = 0; round < 50; ++round) {
    connected<T> c;
    std::thread writing([&] {
      weft::outbox batch;
      for (std::uint64_t i = 0; i < count; ++i) {
        batch.push(make_frame(i, 100, {i % 3 == 0 ? 2000u : 10u}));
        CHECK(c.there->try_write(batch) == weft::write_status::everything);
        if (i % 8 == 0) std::this_thread::yield();
      }
    });
    collector got;
    c.first.restart();
    asio::co_spawn(c.first, read_frames(*c.here, got, 1), asio::detached);
    c.first.run();
    REQUIRE(got.frames.size() >= 1);
    REQUIRE(c.here->move_to(c.second));
    CHECK(&c.here->get_executor().context() == &c.second);
    asio::co_spawn(c.second, read_frames(*c.here, got, count), asio::detached);
    c.second.run();
    writing.join();
    REQUIRE(got.frames.size() == count);
    for (std::uint64_t i = 0; i < count; ++i) CHECK(is_intact(got.frames[i], i));
  }
}

}  // namespace
