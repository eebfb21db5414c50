// SPDX-License-Identifier: BSL-1.0
// The order in which coroutines begin that are called on one reference, in many worlds: whether
// the object is there, is still being made, or is behind references that come late, on one worker
// or across several.
#include <weft/core/gather.hpp>
#include <weft/rref/exclusive.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <core/run_all.hpp>
#include <cstddef>
#include <cstdint>
#include <sim/calls.hpp>
#include <sim/goes_on.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace sim_order {

using namespace std::chrono_literals;
using weft::immediate;
using weft::rref;
using weft::worker;
using weft::testing::rounds;
using weft::testing::sleep_for;
using weft::testing::with_references;

struct diary {
  std::vector<std::uint32_t> told{};
  asio::awaitable<void> tell(std::uint32_t n) {
    told.push_back(n);
    co_return;
  }
  [[nodiscard]] immediate<std::vector<std::uint32_t>> all() const { return told; }
};
using guarded = weft::exclusive<diary>;

asio::awaitable<diary> written_late(worker& me, std::uint32_t us) {
  co_await sleep_for(me, std::chrono::microseconds(us));
  co_return diary();
}
template <class T>
rref<T> made_at(worker& me, std::uint32_t at, std::uint32_t until_there) {
  if constexpr (std::is_same_v<T, diary>) {
    if (until_there > 0) return me.peer(at).remote<&written_late>(until_there);
  }
  return me.peer(at).make<T>();
}
/// Known after that time, and there after another one.
template <class T>
asio::awaitable<rref<T>> made_late(worker& me, std::uint32_t us, std::uint32_t at,
                                   std::uint32_t until_there) {
  co_await sleep_for(me, std::chrono::microseconds(us));
  co_return made_at<T>(me, at, until_there);
}
template <class T>
asio::awaitable<rref<T>> known_late(worker& me, std::uint32_t us, rref<T> r) {
  co_await sleep_for(me, std::chrono::microseconds(us));
  co_return r;
}

/// A reference to one that others have led to, over so many workers.
template <class T>
rref<T> behind_some(worker& me, weft::sim::choices& draw) {
  const auto time = [&] { return draw.pick(2) == 0 ? 0 : draw.pick(3000); };
  const std::uint32_t first = draw.pick(me.world_size());
  const std::uint32_t until_known = time();
  const std::uint32_t at = draw.pick(me.world_size());
  const std::uint32_t until_there = time();
  rref<T> r = draw.pick(3) == 2
                  ? made_at<T>(me, first, until_there)
                  : me.peer(first).remote<&made_late<T>>(until_known, at, until_there);
  for (std::uint32_t more = draw.pick(4); more > 0; --more) {
    // Mostly on that worker, where no message tells of it.
    const std::uint32_t next = draw.pick(3) < 2 ? first : draw.pick(me.world_size());
    const std::uint32_t late = time();
    r = me.peer(next).remote<&known_late<T>>(late, r);
  }
  return r;
}

/// In one burst or with pauses, by calls and posts; each comes behind what was called before.
template <class T, auto Tell, auto All>
asio::awaitable<bool> comes_in_order(worker& me, weft::sim::choices& draw, rref<T> r) {
  std::vector<weft::future<void>> all;
  std::vector<std::uint32_t> sent;
  const std::uint32_t longest = draw.pick(2) == 0 ? 0 : 4u << draw.pick(7);
  for (std::uint32_t i = 0; i < 40; ++i) {
    if (longest > 0) {
      co_await sleep_for(me, std::chrono::microseconds(draw.pick(longest)));
    }
    sent.push_back(i);
    if (draw.pick(2) == 0) {
      all.push_back(r.template start<Tell>(i));
    } else {
      r.template post<Tell>(i);
    }
  }
  co_await weft::gather(std::move(all));
  std::vector<std::uint32_t> told;
  // bounded: by the world's time
  while (told.size() < sent.size()) {
    told = co_await r.template call<All>();
    const auto so_far = static_cast<std::ptrdiff_t>(std::min(told.size(), sent.size()));
    if (!std::equal(told.begin(), told.end(), sent.begin(), sent.begin() + so_far)) {
      co_return false;
    }
    co_await sleep_for(me, 100us);
  }
  co_await sleep_for(me, 20ms);  // what runs twice may do so late
  told = co_await r.template call<All>();
  co_return told == sent;
}

weft::sim::settings of_seed(std::uint64_t seed) {
  weft::sim::settings how;
  if (seed % 3 != 0) how.worker.io_threads = static_cast<unsigned>(seed % 3 - 1);
  how.worker.waiting = 0s;
  how.whole_frames = seed % 2 == 0;
  how.wires.delay = std::chrono::microseconds(5 + seed % 50);
  how.wires.jitter = std::chrono::microseconds(seed % 5 * 100);
  how.slow_handlers_per_1024 = seed % 7 == 0 ? 20 : 0;
  return how;
}

TEST_CASE("order: what is called on a reference comes in the order sent, wherever it leads") {
  for (std::uint64_t seed = 0; seed < rounds(30, 300); ++seed) {
    CAPTURE(seed);
    int kept = 0;
    weft::sim::world w(seed, of_seed(seed), with_references());
    w.start([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      auto& draw = w.decide();
      const auto one = behind_some<diary>(me, draw);
      kept += co_await comes_in_order<diary, &diary::tell, &diary::all>(me, draw, one);
      const auto turns = behind_some<guarded>(me, draw);
      kept += co_await comes_in_order<guarded, &diary::tell, &diary::all>(me, draw, turns);
    });
    REQUIRE(w.run(1min));
    REQUIRE(kept == 2);
    for (std::uint32_t r = 0; r < w.size(); ++r) CHECK_FALSE(w.ended(r));
  }
}

}  // namespace sim_order
