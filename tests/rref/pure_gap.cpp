// SPDX-License-Identifier: BSL-1.0
// Creations that pass a late one, between real workers: as many as may are made, and a peer that
// runs further ahead has lost count.
#include "pure.hpp"
#include <weft/rref/ledger_wire.hpp>

#include <asio/deferred.hpp>

#include <cstddef>
#include <cstdint>
#include <rpc/engine_link.hpp>
#include <span>
#include <thread>
#include <vector>

namespace rref_late {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;

int nothing() { return 0; }
asio::awaitable<int> greet(worker& me, int rank) {
  co_return co_await me.peer(rank).call<&nothing>();
}

/// Asks for a value under a serial of the test's choice; what is answered, as a code.
asio::awaitable<int> create_as(worker& me, std::uint32_t owner, std::uint64_t serial) {
  using namespace weft::rref_protocol;
  using made = weft::function<&nothing>;
  weft::engine::link& to = engine_link(me, owner);
  weft::message m(me.settings().bounds);
  std::byte section[1 + creation_bytes + 4] = {std::byte{2}};  // a creation, no transfers
  static_cast<void>(encode(creation{{owner, me.rank(), serial}, serial},
                           std::span(section).subspan(1, creation_bytes)));
  m.section(weft::section_kind::rref, section);
  weft::frame_header h;
  h.kind = weft::frame_kind::request;
  h.function = made::id();
  h.signature = made::signature;
  h.call = to.pending().open(me.time().now() + 30s);
  const auto number = to.queue(std::move(m), h);
  if (!number) {
    to.pending().close(h.call);
    co_return number.error().code().value();
  }
  to.flush();
  const auto answer =
      co_await weft::async_wait_for_reply(to.pending(), {h.call, *number}, asio::deferred);
  co_return answer.reply ? 0 : answer.failure.code().value();
}

namespace {

TEST_CASE("rref: a peer whose creations run ahead further than any may is refused, and named") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    run_pure(
        3, how, 0,
        [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
          CHECK(co_await me.peer(2).call<&greet>(1) == 0);  // the two are connected
          CHECK(co_await me.peer(2).call<&create_as>(1u, window) == 0);
          CHECK(rrefs(all, 1).counters().owned == 1);
          CHECK(rrefs(all, 1).counters().refused == 0);
          CHECK(engine_link(all.at(1), 2).current_state() == weft::link::state::up);

          CHECK(co_await code_or_failure(me.peer(2).start<&create_as>(1u, window + 1)) != errc{});
          CHECK(co_await eventually([&] {
            return engine_link(all.at(1), 2).current_state() == weft::link::state::down;
          }));
          const auto why = engine_link(all.at(1), 2).reason();
          INFO(why.message());
          CHECK(why == errc::protocol_error);
          CHECK(says(why, "impossible creation"));
          CHECK(rrefs(all, 1).counters().refused == 1);
          // What it had made goes with it; the others go on without it.
          CHECK(co_await eventually([&] { return rrefs(all, 1).counters().owned == 0; }));
          CHECK(co_await me.peer(1).call<&nothing>() == 0);
        },
        2);
  }
}

}  // namespace
}  // namespace rref_late
