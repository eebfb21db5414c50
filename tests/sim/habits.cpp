// SPDX-License-Identifier: BSL-1.0
#include <weft/core/task_group.hpp>

#include <asio/cancellation_state.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>

#include <memory>
#include <optional>
#include <sim/habits.hpp>

namespace weft::testing {

namespace {

using namespace std::chrono_literals;

std::optional<time_point> deadline_here() {
  const auto scope = this_scope();
  return scope ? scope->deadline : std::nullopt;
}

/// Of a function that begins.
void begins(worker& me, std::uint64_t id) {
  witness& w = *witness::current;
  w.runs(id, me.rank());
  const auto deadline = deadline_here();
  if (deadline && me.time().now() >= *deadline) {
    w.complain(w.describe(id) + " began though its deadline had passed");
  }
  // Its time counts also where it waited for room. What was sent before the link was up has more.
  const seen_call& c = w.calls[id];
  if (!deadline || !c.linked || c.limit == duration::zero() || w.world.faulty()) return;
  const duration all = w.world.now() - c.began_in_world + (*deadline - me.time().now());
  if (w.wires_have_room && all > c.limit + c.limit / 30 + w.longest_way) {
    w.complain(w.describe(id) + " has more time here than its caller gives it");
  }
}

asio::awaitable<void> left_over(worker& me, std::optional<time_point> deadline) {
  const inside_now lives;
  for (int i = 0; i < 20; ++i) {
    co_await sleep_for(me, 500us);
    const auto now = deadline_here();
    if (!now || now == deadline) continue;
    witness::current->complain("what a function left behind runs in the scope of another call");
    break;
  }
}

}  // namespace

asio::awaitable<std::uint64_t> leaves_behind(worker& me, std::uint64_t id) {
  const inside_now lives;
  begins(me, id);
  asio::co_spawn(co_await asio::this_coro::executor, left_over(me, deadline_here()),
                 asio::detached);
  co_return id * 3 + 1;
}
asio::awaitable<std::uint64_t> switches_off(worker& me, std::uint64_t id) {
  const inside_now lives;
  begins(me, id);
  co_await asio::this_coro::throw_if_cancelled(false);
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  co_return id * 3 + 1;
}
asio::awaitable<void> until_deadline(worker& me, std::uint64_t id) {
  const inside_now lives;
  begins(me, id);
  witness& w = *witness::current;
  const auto deadline = deadline_here();
  const duration paused = w.world.paused(me.rank());
  for (int i = 0; i < 500; ++i) {
    co_await sleep_for(me, 20ms);
    const duration meanwhile = w.world.paused(me.rank()) - paused;
    if (deadline && me.time().now() < later(*deadline, 500ms) + meanwhile + meanwhile / 90)
      continue;
    w.complain(w.describe(id) + (deadline ? " runs on behind its deadline" : " has no deadline"));
    break;
  }
}
asio::awaitable<std::uint64_t> keeps_much(worker& me, std::uint64_t id,
                                          const std::vector<std::uint64_t>&) {
  const inside_now lives;
  begins(me, id);
  co_await sleep_for(me, 400ms);
  co_return id * 3 + 1;
}
asio::awaitable<std::uint64_t> throws_later(worker& me, std::uint64_t id) {
  const inside_now lives;
  begins(me, id);
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  throw std::runtime_error("a user's error");
}
asio::awaitable<void> stays(worker& me, std::uint64_t id) {
  const inside_now lives;
  begins(me, id);
  witness& w = *witness::current;
  std::optional<time_point> since;
  for (int i = 0; i < 2500; ++i) {
    co_await sleep_for(me, 100ms);
    if (!since && w.all_mains_done()) since = w.world.now();
    if (!since || w.world.now() - *since < 60s) continue;
    w.complain("a minute after the last main has returned the run goes on");
    break;
  }
}
thing make_of(std::uint64_t number, unwritable) { return thing(number); }
asio::awaitable<thing> make_at_length(worker& me, std::uint64_t number) {
  const inside_now lives;
  co_await sleep_for(me, 6s);
  co_return thing(number);
}

namespace {

/// A call, awaited to its end. Whether it succeeded.
template <auto F, class... Args>
asio::awaitable<bool> ask(worker& me, std::uint32_t to, const char* style, bool sure,
                          Args... more) {
  witness& w = *witness::current;
  const bool limited = draw(2) == 1;
  const duration limit = limited ? draw_duration() : duration::zero();
  const std::uint64_t id = w.begin(me, to, style, limit, true);
  w.calls[id].of_main = limited;
  w.calls[id].must_succeed = sure && !limited && w.wires_have_room;
  const waits_for its_end(id);
  expected<std::uint64_t> result;
  try {
    result = co_await (limited ? me.peer(to).call<F>(id, more..., within(limit))
                               : me.peer(to).call<F>(id, more...));
  } catch (const rpc_error& e) {
    result = unexpected(e.error());
  }
  w.ends(me, id, result);
  w.ends_in_time(id);
  co_return result.has_value();
}

asio::awaitable<void> ask_much(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t id = w.begin(me, to, "much at once", duration::zero(), false);
    try {
      me.peer(to).start<&much>(id, std::vector<std::uint64_t>(500 + draw(1500), id)).detach();
    } catch (const rpc_error&) {
      break;
    }
  }
  const std::uint32_t posts = draw(4);
  for (std::uint32_t i = 0; i < posts; ++i) {
    const duration limit = draw_duration();
    const std::uint64_t id = w.begin(me, to, "post until its deadline", limit, false);
    try {
      me.peer(to).post<&until_deadline>(id, within(limit));
    } catch (const rpc_error&) {
      break;
    }
  }
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
}

/// More arguments than a link's budget.
asio::awaitable<void> crowd(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  std::vector<std::pair<std::uint64_t, future<std::uint64_t>>> all;
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t id = w.begin(me, to, "keeps much", duration::zero(), false);
    try {
      all.emplace_back(
          id, me.peer(to).start<&keeps_much>(id, std::vector<std::uint64_t>(500 + draw(1500), id)));
    } catch (const rpc_error&) {
      break;
    }
  }
  for (auto& [id, f] : all) co_await finish_started(me, id, std::move(f));
}

/// Started behind a reply, in the same handler.
asio::awaitable<void> start_behind_a_reply(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  co_await sleep_for(me, 1ms);
  if (!co_await ask<&at_once>(me, to, "in front of a start", true)) co_return;
  const std::uint64_t id = w.begin(me, to, "started behind a reply", duration::zero(), true);
  const waits_for its_end(id);
  future<std::uint64_t> f;
  error why;
  try {
    f = me.peer(to).start<&at_once>(id);
  } catch (const rpc_error& e) {
    why = e.error();
  }
  if (why) {
    w.ends(me, id, unexpected(why));
    co_return;
  }
  co_await finish_started(me, id, std::move(f));
}

/// Nobody passes those who wait for room.
asio::awaitable<void> stand_in_line(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const engine::link& way = w.world.at(me.rank()).worker().link_to(to);
  const auto one = [](worker& here, std::uint32_t there) -> asio::awaitable<void> {
    static_cast<void>(co_await ask<&at_once>(here, there, "in line", true));
  };
  co_await with_task_group([&](task_group& group) -> asio::awaitable<void> {
    for (int i = 0; i < 8; ++i) group.spawn(one(me, to));
    for (int i = 0; i < 40 && way.has_waiters(); ++i) {
      co_await sleep_for(me, std::chrono::microseconds(1 << draw(8)));
      if (!way.has_waiters()) break;
      const std::uint64_t id = w.begin(me, to, "beside the line", duration::zero(), false);
      try {
        me.peer(to).start<&at_once>(id).detach();
        w.complain(w.describe(id) + " passed those who wait for room");
      } catch (const rpc_error&) {
      }
    }
  });
}

/// What ends a run, where something has gone wrong already and it may fail.
asio::awaitable<void> end_badly(worker& me) {
  witness& w = *witness::current;
  if (draw(4) != 3) {
    const std::uint32_t to = draw(me.world_size());
    const std::uint64_t id = w.begin(me, to, "post without end", duration::zero(), false);
    try {
      me.peer(to).post<&stays>(id);
      w.something_stays.emplace_back(me.rank(), to);
    } catch (const rpc_error&) {
    }
    co_return;
  }
  asio::post(weft::detail::context_of(me), [] { throw std::runtime_error("a user's handler"); });
  co_await sleep_for(me, 60s);
  w.complain("a handler has thrown, and the run goes on");
}

asio::awaitable<void> abandon_endless(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, "endless", duration::zero(), false);
  {
    future<std::uint64_t> f;
    try {
      f = me.peer(to).start<&never_ends>(id, within(50s));
    } catch (const rpc_error&) {
      co_return;
    }
    co_await sleep_for(me, draw_duration());
  }
  w.calls[id].given_up = w.world.now();
}

/// Started by another thread, and stopped here, maybe before it has begun.
asio::awaitable<void> stop_what_another_starts(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, "started elsewhere", duration::zero(), true);
  const waits_for its_end(id);
  struct shared {
    std::optional<future<std::uint64_t>> started;
    error why;
  };
  const auto box = std::make_shared<shared>();
  asio::post(me.compute_pool(), [&me, box, to, id] {
    try {
      box->started = me.peer(to).start<&at_once>(id);
    } catch (const rpc_error& e) {
      box->why = e.error();
    }
  });
  // bounded: by the world's time
  while (!box->started && !box->why) co_await sleep_for(me, 1us);
  if (box->why) {
    w.ends(me, id, unexpected(box->why));
    co_return;
  }
  box->started->request_stop();
  co_await finish_started(me, id, std::move(*box->started));
}

asio::awaitable<void> use_what_is_never_asked_for(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t number = object_witness::current->expect(me, to, "make_of", false);
  const rref<thing> it = me.peer(to).remote<&make_of>(number, unwritable());
  try {
    static_cast<void>(co_await it.call<&thing::number>(within(10s)));
    w.complain("an object that nobody was asked for was used");
  } catch (const rpc_error& e) {
    if (e.error() == errc::timed_out && !w.world.faulty()) {
      w.complain("an object that nobody was asked for is waited for");
    }
  }
}

asio::awaitable<void> use_what_is_long_in_making(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t number = object_witness::current->expect(me, to, "make_at_length", true);
  const held<thing> object(number, me.peer(to).remote<&make_at_length>(number));
  for (int i = 0; i < 3; ++i) {
    try {
      static_cast<void>(co_await object.it.call<&thing::number>(within(draw_duration() / 16)));
    } catch (const rpc_error&) {
    }
  }
  co_await sleep_for(me, 2s);
  if (w.world.faulty() || !w.world.at(to).alive()) co_return;
  const auto left = w.world.at(to).worker().link_to(me.rank()).count().for_objects;
  if (left == 0) co_return;
  w.complain(std::to_string(left) + " calls that were given up wait for an object");
}

}  // namespace

asio::awaitable<void> some_habits(worker& me, std::uint32_t steps, bool crowded) {
  const inside_now lives;
  try {
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      const std::uint32_t to = draw(me.world_size());
      if (crowded) {
        co_await crowd(me, to);
        continue;
      }
      switch (draw(12)) {
      case 0:
        co_await ask<&leaves_behind>(me, to, "leaves behind", true);
        break;
      case 1:
        co_await ask<&switches_off>(me, to, "switches off", true);
        break;
      case 2:
        co_await abandon_endless(me, to);
        break;
      case 3:
      case 4:
        co_await ask_much(me, to);
        break;
      case 5:
        co_await start_behind_a_reply(me, to);
        break;
      case 6:
        co_await stop_what_another_starts(me, to);
        break;
      case 7:
        co_await use_what_is_never_asked_for(me, to);
        break;
      case 8:
        co_await use_what_is_long_in_making(me, to);
        break;
      case 9:
        co_await stand_in_line(me, to);
        break;
      case 10:
        static_cast<void>(co_await ask<&throws_later>(me, to, "throws later", false));
        break;
      default:
        co_await ask<&takes_time>(me, to, "takes time", true);
      }
    }
    if (witness::current->world.faulty() && draw(4) == 3) co_await end_badly(me);
    witness& w = *witness::current;
    w.mains_done.push_back(me.rank());
    if (w.is_quiet_at_the_end) {
      co_await silence(me);
      co_await sleep_for(me,
                         me.settings().call_deadline + 6s);  // what is long in making, or detached
      co_await must_be_quiet(me);
    }
  } catch (const std::exception&) {
    witness::current->mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
