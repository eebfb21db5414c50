// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/rref_service.hpp>

#include <algorithm>
#include <sim/references.hpp>

namespace weft::testing {

thing make_thing(worker& me, std::uint64_t number) { return {number, me.rank()}; }
asio::awaitable<thing> make_slowly(worker& me, std::uint64_t number) {
  const inside_now lives;
  co_await sleep_for(me, draw_duration());
  co_return thing(number, me.rank());
}
thing make_nothing(worker&, std::uint64_t) { throw std::runtime_error("nothing is made"); }

namespace {

/// Uses it; what is said must be true, and an error one that a user can expect.
asio::awaitable<void> use(worker& me, const rref<thing>& it, std::uint64_t number) {
  object_witness& w = *object_witness::current;
  const bool within_time = draw(2) == 0;
  try {
    const std::uint64_t seen = within_time
                                   ? co_await it.call<&thing::number>(within(draw_duration()))
                                   : co_await it.call<&thing::number>();
    if (seen != number) w.calls.complain("a reference led to another object");
    w.calls.world.tell(me.rank(), "has used object", number);
  } catch (const rpc_error& e) {
    w.calls.world.tell(me.rank(), "could not use object: " + e.error().code().message(), number);
    const error& why = e.error();
    const bool expected_one =
        why == errc::timed_out || why == errc::remote_exception || why == errc::cancelled;
    const bool of_a_loss = why == errc::peer_died || why == errc::rref_owner_died ||
                           why == errc::rref_lost || why == errc::shutting_down ||
                           why == errc::resource_exhausted || why == errc::worker_failed;
    if (!expected_one && !(of_a_loss && w.calls.world.faulty())) {
      w.calls.complain("a use of object " + std::to_string(number) + " failed: " + e.what());
    }
  }
}

asio::awaitable<void> some_sharing(worker& me, rref<thing> it, std::uint64_t number,
                                   std::uint32_t depth) {
  const std::uint32_t to = draw(me.world_size());
  try {
    switch (draw(6)) {
    case 0:
      co_await use(me, it, number);
      break;
    case 1:
      static_cast<void>(co_await me.peer(to).call<&look>(it, number));
      break;
    case 2:
      static_cast<void>(co_await me.peer(to).call<&keep>(it, number, within(draw_duration())));
      break;
    case 3: {
      const rref<thing> back = co_await me.peer(to).call<&pass_back>(it);
      it = rref<thing>();
      co_await use(me, back, number);
      break;
    }
    case 4:
      if (depth == 0) break;
      static_cast<void>(
          co_await me.peer(to).call<&pass_on>(it, number, depth - 1, within(draw_duration())));
      break;
    default:
      me.peer(to).post<&keep>(it, number);
    }
  } catch (const rpc_error& e) {
    object_witness::current->calls.world.tell(
        me.rank(), "could not share: " + e.error().code().message(), number);
  }
}

}  // namespace

asio::awaitable<std::uint64_t> look(worker& me, rref<thing> it, std::uint64_t number) {
  const inside_now lives;
  co_await use(me, it, number);
  co_return number;
}
asio::awaitable<std::uint64_t> keep(worker& me, rref<thing> it, std::uint64_t number) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  object_witness::current->stored[me.rank()].emplace_back(number, std::move(it));
  co_return number;
}
asio::awaitable<rref<thing>> pass_back(worker& me, rref<thing> it) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  co_return it;
}
asio::awaitable<std::uint64_t> pass_on(worker& me, rref<thing> it, std::uint64_t number,
                                       std::uint32_t depth) {
  const inside_now lives;
  co_await some_sharing(me, std::move(it), number, depth);
  co_return number;
}

asio::awaitable<void> some_references(worker& me, std::uint32_t steps) {
  const inside_now lives;
  object_witness& w = *object_witness::current;
  witness& calls = w.calls;
  try {
    std::vector<std::pair<std::uint64_t, rref<thing>>> mine;
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      const std::uint32_t what = draw(8);
      if (what < 3 || mine.empty()) {
        const std::uint32_t to = draw(me.world_size());
        const std::uint64_t number = w.objects.size();
        w.objects.push_back({to, 0, 0});
        calls.world.tell(me.rank(), "makes an object, number", number);
        try {
          switch (draw(4)) {
          case 0:
          case 1:
            mine.emplace_back(number, me.peer(to).remote<&make_thing>(number));
            break;
          case 2:
            mine.emplace_back(number, me.peer(to).remote<&make_slowly>(number));
            break;
          default:
            mine.emplace_back(number, me.peer(to).remote<&make_nothing>(number));
          }
        } catch (const rpc_error&) {
        }
        continue;
      }
      const std::size_t at = draw(static_cast<std::uint32_t>(mine.size()));
      if (what == 3) {
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (what == 4) {
        auto& stored = w.stored[me.rank()];
        if (stored.empty()) continue;
        const auto one = std::move(stored.back());
        stored.pop_back();
        co_await use(me, one.second, one.first);
      } else {
        const auto one = mine[at];
        co_await some_sharing(me, one.second, one.first, 2);
      }
    }
    mine.clear();
    calls.mains_done.push_back(me.rank());
    // All that is stored goes, until nobody can store anything more; then every object dies.
    sim::world& world = calls.world;
    const auto lives = [&](std::uint32_t r) { return world.at(r).alive(); };
    const auto all = [&](auto&& so) {
      for (std::uint32_t r = 0; r < me.world_size(); ++r) {
        if (lives(r) && !so(r)) return false;
      }
      return true;
    };
    const auto is_done = [&](std::uint32_t r) {
      return std::find(calls.mains_done.begin(), calls.mains_done.end(), r) !=
             calls.mains_done.end();
    };
    const auto clean = [&](std::uint32_t r) {
      return w.living(r) == 0 && (world.faulty() || world.worker_at(r).use<rref_service>().idle());
    };
    const auto tidy = [&]() -> asio::awaitable<void> {
      w.stored[me.rank()].clear();
      co_await sleep_for(me, std::chrono::milliseconds(20));
    };
    // bounded: by the world's time
    while (!all(is_done)) co_await tidy();
    const duration limit = me.settings().lost_after + std::chrono::seconds(1) +
                           2 * me.settings().call_deadline + std::chrono::seconds(4);
    const time_point until = later(me.time().now(), limit);
    while (me.time().now() < until && !all(clean)) co_await tidy();
    if (!clean(me.rank()) && !world.was_cut()) {
      calls.complain(std::to_string(w.living(me.rank())) + " objects of worker " +
                     std::to_string(me.rank()) + " live though nobody has them; " +
                     me.use<rref_service>().describe());
    }
    if (calls.is_quiet_at_the_end) {
      co_await sleep_for(me, std::chrono::seconds(1));
      if (!world.faulty()) calls.check_quiet(me);
    }
  } catch (const std::exception& e) {
    calls.mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
