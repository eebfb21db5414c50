// SPDX-License-Identifier: BSL-1.0
// What the ledger's bounds are to users, and to peers that ask and never listen.
#include "pure.hpp"
#include <weft/rref/ledger_wire.hpp>

#include <algorithm>
#include <chrono>
#include <core/for_ever.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <rpc/engine_link.hpp>
#include <rpc/raw_peer.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace rref_bounds {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;

asio::awaitable<void> serve(worker&) { co_await for_ever(); }

/// So many messages that are each answered at once and change nothing: registrations for what the
/// owner, worker 1, has never made.
byte_string questions(std::uint64_t& sequence) {
  using namespace weft::rref_protocol;
  weft::message m;
  for (std::size_t i = 0; i < messages_per_frame; ++i) {
    message add;
    add.kind = message_kind::add;
    add.id = {1, 1, 99};
    add.sequence = ++sequence;
    std::byte bytes[message_bytes];
    REQUIRE(encode(add, bytes));
    m.payload().raw(bytes, sizeof bytes);
  }
  weft::frame_header h;
  h.kind = weft::frame_kind::rref;
  return bytes_of(std::move(m).finish(h));
}

namespace {

TEST_CASE(
    "rref bounds: as many creations as the window holds pass one that is not sent, and no more" *
    doctest::test_suite("all")) {
  run_pure(2, over::tcp, 0, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    // It has its name at once; its request leaves when this thread gets to it.
    rref<quick> first;
    const auto sent = me.stats().calls;
    std::thread other([&first, there = me.peer(1)] { first = there.make<quick>(7); });
    other.join();
    REQUIRE(first.id().serial == 1);
    CHECK(me.stats().calls == sent);
    std::vector<rref<quick>> many;
    for (std::uint64_t i = 1; i < window; ++i) {
      many.push_back(me.peer(1).make<quick>(static_cast<int>(i)));
    }
    for (int again = 0; again < 3; ++again) {
      std::optional<weft::error> refused;
      try {
        many.push_back(me.peer(1).make<quick>(-1));
      } catch (const weft::rpc_error& e) {
        refused = e.error();
      }
      REQUIRE(refused);
      CHECK(*refused == errc::resource_exhausted);
      CHECK(refused->ran() == weft::call_progress::not_sent);
    }
    // Nothing suffered, and there is room once it has left.
    CHECK(many.back().id().serial == window);
    CHECK(co_await first.call<&quick::get>() == 7);
    CHECK(co_await many.front().call<&quick::get>() == 1);
    CHECK(co_await many.back().call<&quick::get>() == static_cast<int>(window) - 1);
    CHECK(co_await me.peer(1).make<quick>(8).call<&quick::get>() == 8);
    CHECK(rrefs(all, 1).counters().created == window + 1);
    CHECK(rrefs(all, 1).counters().refused == 0);
    CHECK(me.link_to(1).current_state() == weft::link::state::up);
  });
}

TEST_CASE("rref bounds: a peer that asks and reads no answer loses its link, and nobody else's") {
  weft::options o = with_io_threads(1);
  o.rendezvous_deadline = 1h;  // the stranger never greets rank 0
  o.stall_limit = 1h;
  o.lost_after = {};
  o.outbox_bytes = 1 << 20;
  pure_cluster all(2, over::tcp, o, 1);
  all.start(serve);
  raw_peer peer(all.members().members[1].addresses[0].endpoint);
  REQUIRE(peer.greet(all.members(), 2, 1));
  // 16 MiB may be left unread, and what the kernel holds for both; the worker reads all the time.
  constexpr std::size_t most = std::size_t{256} << 20;
  std::uint64_t sequence = 0;
  std::size_t said = 0;
  bool open = true;
  while (open && said < most) {  // bounded: by what it says
    const byte_string more = questions(sequence);
    open = peer.send(more);
    said += more.size();
  }
  CHECK_FALSE(open);
  CHECK(said > (std::size_t{16} << 20));
  const auto why = engine_link(all.at(1), 2).reason();
  INFO(why.message());
  CHECK(why == errc::resource_exhausted);
  CHECK(says(why, "unread"));
  CHECK(all.at(0).link_to(1).current_state() != weft::link::state::down);
  CHECK(all.at(1).link_to(0).current_state() != weft::link::state::down);
  all.stop();
  static_cast<void>(all.join());
}

}  // namespace
}  // namespace rref_bounds
