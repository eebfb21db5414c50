// SPDX-License-Identifier: BSL-1.0
#include <weft/core/channel.hpp>
#include <weft/core/gather.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/core/sleep_for.hpp>
#include <weft/rpc/retry.hpp>
#include <weft/rref/peer.hpp>

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <sim/verbs.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::testing {

namespace {

/// Whether what failed may have failed: a fault, or a wait that was cancelled with its main.
void must_not_fail(worker& me, const char* what, const std::exception& e) {
  witness& w = *witness::current;
  if (w.world.faulty() || w.may_miss_each_other) return;
  w.complain(std::string(what) + " failed on worker " + std::to_string(me.rank()) +
             ", though nothing was wrong: " + e.what());
}

/// `work` within a drawn time, after which it has ended.
template <class T>
asio::awaitable<T> in_some_time(worker& me, std::uint32_t shorter, asio::awaitable<T> work) {
  witness& w = *witness::current;
  const duration limit = draw_duration() / shorter;
  const time_point began = me.time().now();
  const duration paused = w.world.paused(me.rank());
  std::exception_ptr failure;
  std::optional<T> result;
  try {
    result.emplace(co_await with_deadline(limit, std::move(work)));
  } catch (...) {
    failure = std::current_exception();
  }
  const duration meanwhile = w.world.paused(me.rank()) - paused;
  const duration late = me.time().now() - later(began, limit) - meanwhile - meanwhile / 90;
  if (late > std::chrono::milliseconds(50)) w.complain("with_deadline took longer than it may");
  if (failure) std::rethrow_exception(failure);
  co_return std::move(*result);
}

asio::awaitable<std::uint64_t> a_call(worker& me, std::uint32_t to, std::uint64_t id) {
  return draw(2) == 1 ? me.peer(to).call<&takes_time>(id) : me.peer(to).call<&on_pool>(id);
}
future<std::uint64_t> a_started_call(worker& me, std::uint32_t to, std::uint64_t id) {
  return draw(2) == 1 ? me.peer(to).start<&takes_time>(id) : me.peer(to).start<&on_pool>(id);
}

/// Each call has its outcome, at its place.
asio::awaitable<void> gather_some(worker& me) {
  witness& w = *witness::current;
  std::vector<std::uint64_t> ids;
  std::deque<waits_for> ends;
  std::vector<asio::awaitable<std::uint64_t>> calls;
  const std::uint32_t count = 1 + draw(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t to = draw(me.world_size());
    ids.push_back(w.begin(me, to, "gathered", duration::zero(), true));
    w.calls[ids.back()].must_succeed = w.wires_have_room;
    ends.emplace_back(ids.back());
    calls.push_back(a_call(me, to, ids.back()));
  }
  const auto all = co_await gather(std::move(calls), as_expected);
  for (std::uint32_t i = 0; i < count; ++i) w.ends(me, ids[i], all[i]);
}

struct started_calls {
  std::vector<std::uint64_t> ids;
  std::vector<future<std::uint64_t>> futures;
};
/// Those that found room.
started_calls start_some(worker& me, const char* style) {
  witness& w = *witness::current;
  started_calls out;
  const std::uint32_t count = 1 + draw(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t to = draw(me.world_size());
    const std::uint64_t id = w.begin(me, to, style, duration::zero(), false);
    try {
      out.futures.push_back(a_started_call(me, to, id));
    } catch (const rpc_error&) {
      continue;
    }
    out.ids.push_back(id);
  }
  return out;
}

asio::awaitable<void> take_as_they_come(worker& me) {
  witness& w = *witness::current;
  started_calls some = start_some(me, "completed");
  std::deque<waits_for> ends;
  for (const std::uint64_t id : some.ids) {
    ends.emplace_back(id);
    w.calls[id].awaited = true;
    w.calls[id].must_succeed = w.wires_have_room;
  }
  auto arriving = as_completed(std::move(some.futures));
  for (std::size_t left = some.ids.size(); left > 0; --left) {
    const auto one = co_await arriving.next();
    if (!one || arriving.remaining() != left - 1) {
      w.complain("results that come one after another are too few");
      co_return;
    }
    w.ends(me, some.ids[one->index], one->result);
  }
  if (co_await arriving.next()) w.complain("a result came twice");
}

asio::awaitable<void> take_the_first(worker& me) {
  witness& w = *witness::current;
  started_calls some = start_some(me, "one of the first");
  const std::size_t all = some.ids.size();
  const std::size_t wanted = all == 0 ? 0 : draw(static_cast<std::uint32_t>(all) + 1);
  try {
    const auto got = co_await first(wanted, std::move(some.futures));
    if (got.size() != wanted) w.complain("not so many results as were wanted");
    for (const auto& one : got) w.ends(me, some.ids[one.index], one.result);
  } catch (const rpc_error& e) {
    must_not_fail(me, "first", e);
  }
  for (const std::uint64_t id : some.ids) {
    if (w.calls[id].outcomes == 0) w.calls[id].given_up = w.world.now();
  }
}

/// What a channel's users have seen.
struct passed_on {
  std::uint64_t sent = 0, received = 0;
};

asio::awaitable<void> produce(worker& me, channel<std::uint64_t> to, std::uint64_t count,
                              std::shared_ptr<passed_on> seen) {
  const struct closes {
    channel<std::uint64_t>& it;
    ~closes() { it.close(); }
  } at_the_end{to};
  for (std::uint64_t i = 0; i < count; ++i) {
    if (draw(3) == 2) co_await sleep_for(me, draw_duration() / 64);
    co_await to.send(i);
    ++seen->sent;
  }
}
/// In order, none missing, none twice; with a limit now and then, which takes nothing.
asio::awaitable<void> pass_through_a_channel(worker& me) {
  witness& w = *witness::current;
  const auto seen = std::make_shared<passed_on>();
  const channel<std::uint64_t> numbers(1 + draw(3));
  const std::uint64_t count = draw(12);
  future<void> producer = me.spawn(produce(me, numbers, count, seen));
  // bounded: by the world's time
  for (;;) {
    try {
      const auto next =
          co_await (draw(3) == 2 ? in_some_time(me, 64, numbers.receive()) : numbers.receive());
      if (!next) break;
      if (*next != seen->received++) w.complain("a channel has another order");
    } catch (const rpc_error& e) {
      if (e.error() != errc::timed_out) throw;
    }
  }
  co_await std::move(producer).get();
  if (seen->sent != count || seen->received != count) w.complain("a channel has lost something");
}

asio::awaitable<void> compute_here(worker& me) {
  witness& w = *witness::current;
  const std::uint64_t given = draw(1000);
  const auto work = [&w](std::uint64_t x, std::vector<std::uint64_t> more) {
    if (w.world.decide().pick(8) == 7) throw std::runtime_error("a user's error");
    return x + more.size();
  };
  try {
    const std::uint64_t got =
        co_await in_some_time(me, 1, weft::on_pool(work, given, std::vector<std::uint64_t>(3)));
    if (got != given + 3) w.complain("on_pool has another result");
  } catch (const rpc_error& e) {
    if (e.error() != errc::timed_out) throw;
  } catch (const std::runtime_error& e) {
    if (std::string_view(e.what()) != "a user's error") throw;
  }
}

/// Longer than it may, so that it is cancelled.
asio::awaitable<void> wait_too_long(worker& me) {
  const auto sleeps = []() -> asio::awaitable<std::uint64_t> {
    co_await weft::sleep_for(std::chrono::seconds(5));
    co_return 1;
  };
  try {
    static_cast<void>(co_await in_some_time(me, 1, sleeps()));
    witness::current->complain("what was to be cancelled was not");
  } catch (const rpc_error& e) {
    if (e.error() != errc::timed_out) throw;
  }
}

asio::awaitable<void> be_called_back(worker& me) {
  witness& w = *witness::current;
  const std::uint32_t to = draw(me.world_size());
  const std::uint64_t times = draw(4);
  const auto heard = std::make_shared<std::uint64_t>(0);  // it may be called when this is gone
  const std::uint32_t here = me.rank();
  const callback<std::uint64_t(std::uint64_t)> told(me, [heard, &w, here](std::uint64_t i) {
    if (w.world.runs_now() != here) w.complain("a callback runs on another worker");
    if (i != (*heard)++) w.complain("a callback was called in another order");
    return i + 1;
  });
  const std::uint64_t id = w.begin(me, to, "calls back", duration::zero(), true);
  w.calls[id].carries = true;
  w.calls[id].must_succeed = w.wires_have_room;
  const waits_for its_end(id);
  const auto result = co_await me.peer(to).call<&calls_back>(id, times, told, as_expected);
  w.ends(me, id, result);
  if (result && *heard != times) w.complain("a callback was called too seldom");
}

asio::awaitable<void> ask_all(worker& me) {
  witness& w = *witness::current;
  std::vector<peer> peers;
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    if (draw(4) != 3) peers.push_back(me.peer(r));
  }
  try {
    const auto all = co_await make_sharded<counting>(peers, std::uint64_t{7});
    for (const std::uint64_t n : co_await all.call_all<&counting::next>()) {
      if (n != 8) w.complain("one of several objects is another's");
    }
  } catch (const rpc_error& e) {
    must_not_fail(me, "one object per worker", e);
  }
}

/// The callee gets it from where it is, before the function runs.
asio::awaitable<void> give_a_reference(worker& me) {
  witness& w = *witness::current;
  const std::uint64_t number = draw(1000);
  const bool fails = draw(6) == 5;
  const std::uint32_t at = draw(me.world_size());
  const std::uint32_t to = draw(me.world_size());
  rref<std::uint64_t> held = me.peer(at).remote<&number_there>(number, fails);
  const bool from_here = draw(4) == 3;
  const std::uint64_t id = w.begin(me, to, "given a reference", duration::zero(), true);
  w.calls[id].carries = true;
  w.calls[id].must_succeed = w.wires_have_room && !fails && !w.may_miss_each_other;
  const waits_for its_end(id);
  expected<std::uint64_t> result;
  if (from_here) {
    result = co_await me.peer(to).call<&takes_numbers>(id, std::exchange(held, {}),
                                                       me.share(number), as_expected);
  } else {
    result =
        co_await me.peer(to).call<&takes_number>(id, std::exchange(held, {}), number, as_expected);
  }
  w.ends(me, id, result);
  if (fails && w.calls[id].ran != 0) w.complain("a function ran without its argument");
}

/// One after another, though each waits in between; some give up.
asio::awaitable<void> take_turns(worker& me) {
  witness& w = *witness::current;
  const std::uint32_t to = draw(me.world_size());
  const auto one = me.peer(to).make<exclusive<lonely>>();
  struct started {
    std::uint64_t id;
    future<std::uint64_t> result;
  };
  std::vector<started> all;
  const std::uint32_t count = 1 + draw(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool stays = draw(4) != 3;
    const bool slowly = draw(2) == 1;
    const std::uint64_t id = w.begin(me, to, "in turn", duration::zero(), false);
    w.calls[id].carries = true;
    try {
      auto f = slowly ? one.start<&lonely::count_slowly>(id) : one.start<&lonely::count>(id);
      if (stays) all.push_back({id, std::move(f)});
    } catch (const rpc_error&) {
    }
    w.calls[id].given_up = stays ? time_point{} : w.world.now();
  }
  for (started& s : all) {
    w.calls[s.id].awaited = true;
    w.calls[s.id].must_succeed = w.wires_have_room;
    const waits_for its_end(s.id);
    co_await finish_started(me, s.id, std::move(s.result));
  }
}

/// Its function runs once at most, unless it is idempotent.
asio::awaitable<void> repeat_a_call(worker& me) {
  witness& w = *witness::current;
  const std::uint32_t to = draw(me.world_size());
  const bool may_repeat = draw(2) == 1;
  const duration limit = draw_duration();
  const duration first = draw_duration() / 64;
  const duration each = draw_duration();
  const retry how{.first = first, .each = each};
  const std::uint64_t id = w.begin(me, to, "repeated", limit, true);
  const waits_for its_end(id);
  w.calls[id].may_repeat = may_repeat;
  auto call = may_repeat ? me.peer(to).call<&takes_time_again>(id, how, within(limit), as_expected)
                         : me.peer(to).call<&takes_time>(id, how, within(limit), as_expected);
  w.ends(me, id, co_await std::move(call));
}

/// Each worker publishes what it is asked for, for some time.
asio::awaitable<void> find_by_name(worker& me) {
  witness& w = *witness::current;
  const std::string mine = "of worker " + std::to_string(draw(2));
  try {
    me.publish(mine, me.share(counting(std::uint64_t{me.rank()})));
    if (draw(2) == 1) co_await sleep_for(me, draw_duration());
    const std::uint32_t to = draw(me.world_size());
    const duration limit = draw_duration();
    const auto found = co_await in_time(
        me, "a lookup", limit, me.peer(to).lookup<counting>(mine, within(limit), as_expected));
    if (found) {
      const auto value = co_await found->call<&counting::look>(as_expected);
      if (value && *value != to) w.complain("a name led to another worker's object");
      if (!value && found->id().owner != to) w.complain("a name led elsewhere");
    } else if (to == me.rank() && found.error() != errc::timed_out) {
      must_not_fail(me, "one's own name", rpc_error(found.error()));
    }
    if (!me.unpublish(mine) && !w.world.faulty()) w.complain("a name was lost");
  } catch (const rpc_error& e) {
    must_not_fail(me, "a name", e);
    me.unpublish(mine);
  } catch (...) {
    me.unpublish(mine);
    throw;
  }
}

/// It ends on its own, at the end of the run at the latest.
asio::awaitable<void> leave_work_behind(worker& me) {
  const auto work = [](worker& here, duration time) -> asio::awaitable<void> {
    const inside_now lives;
    co_await weft::sleep_for(time);
    try {
      co_await here.peer(0).room(within(time));
    } catch (const rpc_error&) {  // it has no promise to keep
    }
  };
  me.spawn_detached(work(me, draw_duration()));
  co_return;
}

}  // namespace

asio::awaitable<std::uint64_t> takes_time_again(worker& me, std::uint64_t id) {
  return takes_time(me, id);
}
asio::awaitable<std::uint64_t> number_there(worker& me, std::uint64_t number, bool fails) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration() / 8);
  if (fails) throw std::runtime_error("a number that is never made");
  co_return number;
}
asio::awaitable<std::uint64_t> takes_number(worker& me, std::uint64_t id, std::uint64_t number,
                                            std::uint64_t expected) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  if (number != expected) witness::current->complain("another number than was referred to");
  co_return id * 3 + 1;
}
std::uint64_t takes_numbers(worker& me, std::uint64_t id, std::uint64_t a, std::uint64_t b) {
  witness::current->runs(id, me.rank());
  if (a != b) witness::current->complain("another number than was referred to");
  return id * 3 + 1;
}

void lonely::enter(worker& me, std::uint64_t id) {
  witness::current->runs(id, me.rank());
  if (inside_) witness::current->complain("two calls at once in one that is exclusive");
}
asio::awaitable<std::uint64_t> lonely::count_slowly(worker& me, std::uint64_t id) {
  const inside_now lives;
  enter(me, id);
  const struct stays {
    explicit stays(bool& flag) : in(flag) { in = true; }
    ~stays() { in = false; }
    bool& in;
  } here(inside_);
  co_await sleep_for(me, draw_duration() / 8);
  co_return id * 3 + 1;
}
std::uint64_t lonely::count(worker& me, std::uint64_t id) {
  enter(me, id);
  return id * 3 + 1;
}

asio::awaitable<std::uint64_t> calls_back(worker& me, std::uint64_t id, std::uint64_t times,
                                          callback<std::uint64_t(std::uint64_t)> what) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  for (std::uint64_t i = 0; i < times; ++i) {
    if (co_await what(i) != i + 1) witness::current->complain("a callback has another result");
  }
  co_return id * 3 + 1;
}

asio::awaitable<std::uint64_t> counting::next(worker& me) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration() / 64);
  co_return ++value_;
}

asio::awaitable<void> some_verbs(worker& me, std::uint32_t steps) {
  const inside_now lives;
  try {
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      switch (draw(14)) {
      case 0:
        co_await gather_some(me);
        break;
      case 1:
        co_await take_as_they_come(me);
        break;
      case 2:
        co_await take_the_first(me);
        break;
      case 3:
        co_await pass_through_a_channel(me);
        break;
      case 4:
        co_await compute_here(me);
        break;
      case 5:
        co_await be_called_back(me);
        break;
      case 6:
        co_await wait_too_long(me);
        break;
      case 7:
        co_await give_a_reference(me);
        break;
      case 8:
      case 9:
        co_await take_turns(me);
        break;
      case 10:
        co_await repeat_a_call(me);
        break;
      case 11:
        co_await find_by_name(me);
        break;
      case 12:
        co_await leave_work_behind(me);
        break;
      default:
        co_await ask_all(me);
      }
    }
    witness& w = *witness::current;
    w.mains_done.push_back(me.rank());
    if (w.is_quiet_at_the_end) {
      co_await silence(me);
      co_await must_be_quiet(me);
    }
  } catch (const std::exception&) {
    witness::current->mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
