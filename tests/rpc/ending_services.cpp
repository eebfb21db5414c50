// SPDX-License-Identifier: BSL-1.0
// What services hear of links when a run ends.
#include <weft/core/event.hpp>

#include <atomic>
#include <core/for_ever.hpp>
#include <rpc/cluster_bodies.hpp>
#include <rpc/witness.hpp>
#include <rref/gate.hpp>
#include <set>
#include <stdexcept>
#include <string>

namespace ending_services {

using namespace weft::testing;
using weft::worker;

int add(int a, int b) { return a + b; }
inline std::atomic<int>& waiting() {
  static std::atomic<int> it;
  return it;
}
asio::awaitable<void> wait_for_ever() {
  ++waiting();
  co_await for_ever();
}

// Also where one is seen to leave before rank 0's word is heard: it has passed that word on.
TEST_CASE("ending: services hear of the loss of whoever failed, and not of those who leave then") {
  for (const unsigned io_threads : io_ways()) {
    for (const std::uint32_t who : {1u, 2u, 3u}) {
      CAPTURE(io_threads);
      CAPTURE(who);
      witness::forget();
      waiting() = 0;
      {
        cluster_with<witness> workers(4, over::tcp, with_io_threads(io_threads));
        const auto ends = workers.run([who](worker& me) -> asio::awaitable<void> {
          for (std::uint32_t r = 0; r < 4; ++r) co_await me.peer(r).call<&add>(1, 1);
          if (me.rank() == who) {
            CHECK(co_await eventually([] { return waiting() == 3; }));  // all links are there
            throw std::runtime_error("over");
          }
          co_await me.peer(who).call<&wait_for_ever>(weft::within(std::chrono::hours(1)));
        });
        for (const auto& e : ends) CHECK(e);
      }
      for (std::uint32_t r = 0; r < 4; ++r) {
        CAPTURE(r);
        if (r != who) CHECK(witness::lost_to(r) == std::multiset<std::uint32_t>{who});
      }
    }
  }
}

/// Whoever waits at it hears of the end when its waits are failed, and not before.
struct herald final : weft::service {
  static constexpr weft::service_id place = weft::service_id::reserved2;
  explicit herald(worker&) {}
  void fail_waits(const weft::error&) override { told->set(); }
  weft::intrusive_ptr<weft::event> told = weft::make_intrusive<weft::event>();
};
/// What it is told, handed on from one coroutine to the next.
asio::awaitable<bool> handed_on(worker& me, int times) {
  if (times > 0) co_return co_await me.spawn(handed_on(me, times - 1));
  co_await weft::event::wait(me.use<herald>().told);
  co_return true;
}

TEST_CASE("ending: what a service tells at the end is heard through others, before the cancel") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    bool heard = false;
    cluster_with<herald> workers(3, over::tcp, with_io_threads(io_threads));
    const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 0) heard = co_await handed_on(me, 20);
      co_await me.peer(0).call<&add>(1, 1);
      if (me.rank() == 1) throw std::runtime_error("over");
    });
    for (const auto& e : ends) CHECK(e);
    CHECK(heard);
  }
}

}  // namespace ending_services
