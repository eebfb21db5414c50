// SPDX-License-Identifier: BSL-1.0
// Both transports of a simulated world, without workers.
#include <weft/sim/transports.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sim_transports {

using namespace std::chrono_literals;
using namespace weft;

struct heap_memory final : blob_owner {
  explicit heap_memory(std::size_t n) : bytes(n) {}
  std::vector<std::byte> bytes;
};
blob make_blob(std::size_t n) {
  auto owner = make_intrusive<heap_memory>(n);
  std::byte* const data = owner->bytes.data();
  return {data, n, std::move(owner)};
}

/// What one end reads; every frame's payload is its number, over and over.
struct reads final : frame_sink {
  [[nodiscard]] const limits& bounds() const noexcept override { return limits_; }
  [[nodiscard]] expected<blob> allocate(std::size_t bytes) override { return make_blob(bytes); }
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override {
    for (const std::byte b : f.payload()) intact &= b == std::byte(f.header.call & 0xff);
    numbers.push_back(f.header.call);
    return {};
  }
  void progress() noexcept override {}
  std::vector<std::uint64_t> numbers;
  bool intact = true;
  std::optional<error> ended;

 private:
  limits limits_;
};

frame make_frame(std::uint64_t number, std::size_t payload) {
  frame f;
  f.header.call = number;
  f.header.payload_bytes = payload;
  f.head.resize(header_size + payload);
  std::memset(f.head.data() + header_size, static_cast<int>(number & 0xff), payload);
  f.seal();
  return f;
}

/// Two hosts, one connection between them.
template <class Transport>
struct rig {
  using connection = typename Transport::connection_type;
  sim::timeline time;
  sim::choices decides{7};
  sim::network net;
  asio::io_context a, b;
  Transport client, server;
  std::optional<connection> near, far;
  std::optional<error> refused;
  reads arrives;

  explicit rig(sim::wire_settings wires = {})
      : net(time, decides, 2, wires), client(net, 0), server(net, 1) {}
  ~rig() {
    near.reset();
    far.reset();
  }
  /// Until nothing is left to happen, or that long.
  void run(duration most = 1h) {
    const time_point until = later(time.now(), most);
    // bounded: by virtual time, of which each turn that finds nothing to do takes some
    for (;;) {
      a.restart(), b.restart();
      if (a.poll() + b.poll() > 0) continue;
      if (time.empty() || time.next() > until) return;
      time.step();
    }
  }
  void connect() {
    const std::string endpoint = server.listen(b);
    asio::co_spawn(b, accept(), asio::detached);
    asio::co_spawn(a, open(endpoint), asio::detached);
    run();
  }
  asio::awaitable<void> accept() {
    try {
      far.emplace(co_await server.accept(b));
    } catch (const rpc_error&) {
    }
  }
  asio::awaitable<void> open(std::string endpoint) {
    try {
      near.emplace(co_await client.connect(a, endpoint));
    } catch (const rpc_error& e) {
      refused = e.error();
    }
  }
  /// One thing happens, and all that follows at once.
  void step() {
    const auto ready = [this] {
      a.restart(), b.restart();
      return a.poll() + b.poll() > 0;
    };
    // bounded: by what there is to do
    while (ready()) continue;
    if (!time.empty()) time.step();
  }
  void read() { asio::co_spawn(b, read_on(), asio::detached); }
  asio::awaitable<void> read_on() {
    try {
      // bounded: ends with the connection
      for (;;) co_await far->read(arrives);
    } catch (const rpc_error& e) {
      arrives.ended = e.error();
    }
  }
  /// Writes all of `batch`, waiting where there is no room.
  asio::awaitable<void> write(outbox& batch) {
    // bounded: ends with the batch, or with the connection
    while (near->try_write(batch) == write_status::blocked) co_await near->writable();
  }
};

TEST_CASE_TEMPLATE("sim transports: frames arrive whole, in order and once, in any pieces",
                   Transport, sim::frames, sim::bytes, sim::late_bytes) {
  for (const std::uint64_t buffer : {300u, 64u << 10, 64u << 20}) {
    CAPTURE(buffer);
    rig<Transport> r({.delay = 50us, .jitter = 3ms, .buffer_bytes = buffer});
    r.connect();
    REQUIRE(r.near);
    REQUIRE(r.far);
    outbox batch;
    std::vector<std::uint64_t> all;
    for (std::uint64_t n = 0; n < 200; ++n) {
      batch.push(make_frame(n, (n * 37) % 500));
      all.push_back(n);
    }
    r.read();
    asio::co_spawn(r.a, r.write(batch), asio::detached);
    r.run();
    CHECK(r.arrives.numbers == all);
    CHECK(r.arrives.intact);
    r.near->close();
    r.run();
    REQUIRE(r.arrives.ended);
    CHECK(*r.arrives.ended == errc::peer_died);
  }
}

TEST_CASE_TEMPLATE("sim transports: what is cut off waits, what is reset is lost", Transport,
                   sim::frames, sim::bytes) {
  for (const bool reset : {false, true}) {
    CAPTURE(reset);
    rig<Transport> r;
    r.connect();
    r.read();
    outbox batch;
    batch.push(make_frame(1, 10));
    r.net.cut(0, 1);
    CHECK(r.near->try_write(batch) == write_status::everything);
    r.run(10s);
    CHECK(r.arrives.numbers.empty());
    if (reset) CHECK(r.net.reset(0, 1));
    r.net.heal(0, 1);
    r.run();
    CHECK(r.arrives.numbers.size() == (reset ? 0 : 1));
    CHECK(r.arrives.ended.has_value() == reset);
    batch.push(make_frame(2, 10));
    CHECK((r.near->try_write(batch) == write_status::closed) == reset);
  }
}

TEST_CASE_TEMPLATE("sim transports: of what is reset one end may hear later, and of nothing else",
                   Transport, sim::frames, sim::bytes) {
  for (const bool reader_first : {false, true}) {
    CAPTURE(reader_first);
    rig<Transport> r;
    r.connect();
    r.read();
    outbox batch;
    batch.push(make_frame(1, 10));
    CHECK(r.near->try_write(batch) == write_status::everything);
    CHECK((reader_first ? r.net.reset(1, 0, 1s) : r.net.reset(0, 1, 1s)));
    CHECK_FALSE(r.net.reset(0, 1));
    r.run(500ms);
    CHECK(r.arrives.ended.has_value() == reader_first);
    batch.push(make_frame(2, 10));
    CHECK((r.near->try_write(batch) == write_status::closed) == !reader_first);
    r.run(1s);
    CHECK(r.arrives.ended);
    CHECK(r.arrives.numbers.empty());
    if (batch.empty()) batch.push(make_frame(3, 10));
    CHECK(r.near->try_write(batch) == write_status::closed);
  }
}

TEST_CASE_TEMPLATE("sim transports: nobody listens, is refused, or answers", Transport, sim::frames,
                   sim::bytes, sim::late_bytes) {
  SUBCASE("nobody listens") {
    rig<Transport> r;
    const std::string endpoint = r.server.listen(r.b);
    r.server.close();
    asio::co_spawn(r.a, r.open(endpoint), asio::detached);
    r.run();
    REQUIRE(r.refused);
    CHECK(*r.refused == errc::peer_died);
    CHECK(r.refused->ran() == call_progress::not_sent);
  }
  SUBCASE("always refused") {
    rig<Transport> r({.refused_percent = 100});
    r.connect();
    REQUIRE(r.refused);
    CHECK_FALSE(r.far);
  }
  SUBCASE("a machine that is gone") {
    rig<Transport> r;
    const std::string endpoint = r.server.listen(r.b);
    r.net.lose(1, true);
    asio::co_spawn(r.a, r.open(endpoint), asio::detached);
    r.run();
    CHECK_FALSE(r.refused);
    CHECK_FALSE(r.near);
  }
  SUBCASE("no endpoint of this transport") {
    rig<Transport> r;
    for (const char* text :
         {"", "sim", "sim:", "simbytes:", "sim:x", "sim:1x", "tcp:1", "sim:-1"}) {
      CHECK_FALSE(r.client.reaches(text));
    }
  }
}

TEST_CASE_TEMPLATE("sim transports: a silent end is not told, a closed one is", Transport,
                   sim::frames, sim::bytes) {
  for (const bool silent : {false, true}) {
    CAPTURE(silent);
    rig<Transport> r;
    r.connect();
    r.read();
    r.net.lose(0, silent);
    r.near->close();
    r.run();
    CHECK(r.arrives.ended.has_value() == !silent);
  }
}

TEST_CASE_TEMPLATE("sim transports: what a cut held is not told once its machine is gone",
                   Transport, sim::frames, sim::bytes) {
  for (const bool silent : {false, true}) {
    CAPTURE(silent);
    rig<Transport> r;
    r.connect();
    r.read();
    r.net.cut(0, 1);
    outbox batch;
    batch.push(make_frame(1, 10));
    CHECK(r.near->try_write(batch) == write_status::everything);
    r.near->close();
    r.run();  // the end is held, too
    if (silent) r.net.lose(0, true);
    r.net.heal(0, 1);
    r.run();
    CHECK(r.arrives.numbers.size() == (silent ? 0 : 1));
    CHECK(r.arrives.ended.has_value() == !silent);
  }
}

TEST_CASE_TEMPLATE("sim transports: a machine that is gone does not answer who connects", Transport,
                   sim::frames, sim::bytes) {
  for (const bool listens : {false, true}) {
    for (const bool held : {false, true}) {
      CAPTURE(listens);
      CAPTURE(held);
      rig<Transport> r;
      const std::string endpoint = r.server.listen(r.b);
      if (listens) {
        asio::co_spawn(r.b, r.accept(), asio::detached);
      } else {
        r.server.close();
      }
      asio::co_spawn(r.a, r.open(endpoint), asio::detached);
      if (held) r.net.cut(1, 0);
      held ? r.run() : r.step();  // it was asked; its answer is held, or on its way
      r.net.lose(1, true);
      r.net.heal(1, 0);
      r.run();
      CHECK_FALSE(r.near);
      CHECK_FALSE(r.refused);
    }
  }
}

TEST_CASE_TEMPLATE("sim transports: a connection that nobody takes any more is closed", Transport,
                   sim::frames, sim::bytes) {
  rig<Transport> r;
  asio::cancellation_signal stop;
  const std::string endpoint = r.server.listen(r.b);
  asio::co_spawn(r.b, r.accept(), asio::detached);
  asio::co_spawn(r.a, r.open(endpoint), asio::bind_cancellation_slot(stop.slot(), asio::detached));
  r.step();  // it arrives
  r.step();  // and so does the answer, which has not been heard
  REQUIRE(r.far);
  stop.emit(asio::cancellation_type::terminal);
  r.run();
  CHECK(r.refused);
  CHECK_FALSE(r.near);
  r.read();
  r.run();
  CHECK(r.arrives.ended);
}

TEST_CASE("sim transports: ways are cut as often as they are healed; of the dead nobody hears") {
  rig<sim::frames> r;
  r.connect();
  r.read();
  r.net.cut(0, 1);
  r.net.cut(0, 1);
  r.net.heal(0, 1);
  CHECK(r.net.is_cut(0, 1));
  r.net.heal(0, 1);
  CHECK_FALSE(r.net.is_cut(0, 1));
  r.net.heal(0, 1);
  r.net.cut(0, 1);
  CHECK(r.net.is_cut(0, 1));
  r.net.heal(0, 1);
  r.net.lose(0, true);
  CHECK_FALSE(r.net.reset(0, 1));
  r.run();
  CHECK_FALSE(r.arrives.ended);
}

TEST_CASE("sim transports: jitter counts, however small") {
  sim::timeline time;
  sim::choices decides{7};
  sim::network net(time, decides, 2, {.delay = 1us, .jitter = 100ns});
  duration most{};
  for (int i = 0; i < 1000; ++i) most = std::max(most, net.delay());
  CHECK(most > 1050ns);
  CHECK(most < 1100ns);
}

TEST_CASE_TEMPLATE("sim transports: closing ends one's own waits", Transport, sim::frames,
                   sim::bytes) {
  rig<Transport> r;
  r.connect();
  r.read();
  r.run();
  r.far->close();
  r.run();
  REQUIRE(r.arrives.ended);
  CHECK(*r.arrives.ended == errc::closed);
  outbox batch;
  batch.push(make_frame(1, 10));
  static_cast<void>(r.near->try_write(batch));
  r.run();
  batch.push(make_frame(2, 10));
  CHECK(r.near->try_write(batch) == write_status::closed);
}

}  // namespace sim_transports
