// SPDX-License-Identifier: BSL-1.0
// The end of a joined worker's run, at every point of which memory lacks on the thread that runs its
// loop: the run ends, once, and nobody waits for ever.
#include "shortage.hpp"
#include <weft/core/system_random.hpp>
#include <weft/engine/worker/joined.hpp>
#include <weft/rpc/owned_worker.hpp>
#include <weft/transport/any_transport.hpp>
#include <weft/transport/inproc.hpp>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace poor_ends {

using namespace std::chrono_literals;
using weft::testing::bounded_wait;
using weft::testing::shortage;

/// A worker alone, on a loop of its own or on that one; counts what its launcher would hear.
std::shared_ptr<weft::engine::joined> alone(asio::io_context* loop, std::atomic<int>& said) {
  weft::options o;
  o.compute_threads = 1;
  o.shutdown_deadline = 5s;
  auto life = std::make_unique<weft::engine::runtime>(
      weft::engine::transports_of(weft::inproc(std::make_shared<weft::inproc::hub>())), o,
      weft::engine::service_makers{}, loop);
  weft::membership all;
  auto random = weft::system_random();
  all.token = weft::random_id(random);
  weft::member& self = all.members.emplace_back();
  self.name = "alone";
  self.addresses = life->addresses();
  auto out = std::make_shared<weft::engine::joined>(std::move(life), loop,
                                                    [&said](const weft::error&) { ++said; });
  out->begin(std::move(all), std::move(random), nullptr);
  return out;
}

/// What a program that goes on after a lack of memory does.
template <class Step>
bool passes(Step&& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST_CASE("shortage: a joined worker's own loop ends, whatever lacks from its leave on") {
  bool struck = true;
  for (long nth = 1; struck && nth < 500; ++nth) {
    CAPTURE(nth);
    std::atomic<int> said{0};
    weft::owned_worker me(alone(nullptr, said));
    std::atomic<bool> begun{false};
    std::atomic<bool> done{false};
    asio::post(me->compute_pool(), [&begun, &done] {
      begun = true;
      std::this_thread::sleep_for(2ms);
      done = true;
    });
    // The end waits for what runs, and drops what has not begun.
    for (bounded_wait until("the thread works"); until.not_yet(begun);) std::this_thread::yield();
    me.leave();
    {
      const shortage now(nth, 0);
      for (bounded_wait until("it has ended"); until.not_yet(passes([&] { return me.poll(); }));) {
      }
      struck = shortage::struck();
    }
    CHECK(done);  // the threads were waited for
    CHECK(said == 1);
    const weft::error end = me.run();
    CHECK((!end || end == weft::errc::worker_failed || end == weft::errc::resource_exhausted));
    CHECK(said == 1);
  }
  CHECK_FALSE(struck);
}

TEST_CASE("shortage: a joined worker on a loop of the user's ends, and leaves it free") {
  bool struck = true;
  for (long nth = 1; struck && nth < 500; ++nth) {
    CAPTURE(nth);
    std::atomic<int> said{0};
    asio::io_context io;
    weft::owned_worker me(alone(&io, said));
    me.leave();
    {
      const shortage now(nth, 0);
      for (bounded_wait until("it has ended"); until.not_yet(said == 1);) {
        passes([&] { return io.run_for(1ms) > 0; });
      }
      struck = shortage::struck();
    }
    for (bounded_wait until("the loop is free"); until.not_yet(io.stopped());) {
      io.run_for(1ms);
    }
    CHECK(said == 1);
  }
  CHECK_FALSE(struck);
}

}  // namespace poor_ends
