// SPDX-License-Identifier: BSL-1.0
// Calls that end while memory lacks.
#include "shortage.hpp"
#include <weft/engine/link/pending_calls.hpp>

#include <asio/bind_executor.hpp>
#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <core/manual_clock.hpp>
#include <new>

namespace poor_slots {

using weft::testing::shortage;

TEST_CASE("shortage: however many calls end at once, they wait for memory together") {
  asio::io_context io;
  weft::testing::manual_clock clock;
  weft::timer_list deadlines(clock, io);
  weft::engine::pending_calls slots(io, deadlines,
                                    [](auto, auto) { return weft::call_progress::maybe_executed; });
  for (int i = 0; i < 10; ++i) {
    slots.add(asio::bind_executor(io, [](const weft::call_result&) {}),
              clock.now() + std::chrono::hours(1));
  }
  const weft::error why(weft::errc::peer_died, "it is gone");
  {
    // One patience tries fewer than 200 times.
    const shortage now(1, 400);
    slots.fail_all(why);
    CHECK_THROWS_AS(static_cast<void>(::operator new(1)), std::bad_alloc);  // it still lacks
  }
  CHECK(slots.waiting() == 0);
}

}  // namespace poor_slots
