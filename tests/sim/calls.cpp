// SPDX-License-Identifier: BSL-1.0
#include <sim/calls.hpp>

namespace weft::testing {

asio::awaitable<std::uint64_t> at_once(worker& me, std::uint64_t id) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  co_return id * 3 + 1;
}
asio::awaitable<std::uint64_t> takes_time(worker& me, std::uint64_t id) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  co_await sleep_for(me, draw_duration());
  co_return id * 3 + 1;
}
asio::awaitable<std::uint64_t> calls_on(worker& me, std::uint64_t id, std::uint32_t depth) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  co_await some_call(me, depth);
  co_return id * 3 + 1;
}
asio::awaitable<std::uint64_t> never_ends(worker& me, std::uint64_t id) {
  const inside_now lives;
  witness& w = *witness::current;
  w.runs(id, me.rank());
  for (int i = 0; i < 600; ++i) {
    co_await sleep_for(me, std::chrono::milliseconds(100));
    if (!w.should_have_ended(me, id)) continue;
    w.complain(w.describe(id) + " was given up, and its function goes on");
    break;
  }
  co_return id * 3 + 1;
}
std::vector<std::uint64_t> much(worker& me, std::uint64_t id,
                                const std::vector<std::uint64_t>& in) {
  witness::current->runs(id, me.rank());
  witness::current->check_bounds(me, id);
  for (const std::uint64_t i : in) {
    if (i != id) witness::current->complain("arguments of another call, or none");
  }
  return std::vector<std::uint64_t>(in.size(), id * 3 + 1);
}

namespace {
[[noreturn]] void break_off(const fragile& v) {
  if (v.lacks_memory) throw std::bad_alloc();
  throw std::out_of_range("a user's codec");
}
}  // namespace

void weft_encode(writer& w, const fragile& v) {
  using enum fragile::breaks;
  if (v.where == (v.is_reply ? written_back : written)) break_off(v);
  weft::encode(w, v.id);
  weft::encode(w, v.where);
  weft::encode(w, v.is_reply);
  weft::encode(w, v.lacks_memory);
}
fragile weft_decode(reader& r, std::type_identity<fragile>) {
  using enum fragile::breaks;
  fragile v;
  v.id = weft::decode<std::uint64_t>(r);
  v.where = weft::decode<fragile::breaks>(r);
  v.is_reply = weft::decode<bool>(r);
  v.lacks_memory = weft::decode<bool>(r);
  if (v.where == (v.is_reply ? read_back : read)) break_off(v);
  return v;
}
fragile give_back(worker& me, std::uint64_t id, fragile in) {
  witness::current->runs(id, me.rank());
  if (in.id != id) witness::current->complain("a value of another call");
  in.id = id * 3 + 1;
  in.is_reply = true;
  return in;
}

namespace {

std::uint64_t number_in(const fragile& reply) { return reply.id; }
std::uint64_t number_in(std::uint64_t reply) { return reply; }
std::uint64_t number_in(const std::vector<std::uint64_t>& reply) {
  const bool even = std::equal(reply.begin() + 1, reply.end(), reply.begin());
  return even ? reply.front() : 0;
}

template <auto F, class... Args>
asio::awaitable<void> finish(worker& me, std::uint32_t to, const char* style, duration limit,
                             bool sure, Args... more) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, style, limit, true);
  w.calls[id].must_succeed = sure && limit == duration::zero();
  w.calls[id].of_main = sure && limit > duration::zero();
  const waits_for its_end(id);
  expected<std::uint64_t> result;
  try {
    if (limit > duration::zero()) {
      result = number_in(co_await me.peer(to).call<F>(id, more..., within(limit)));
    } else {
      auto reply = co_await me.peer(to).call<F>(id, more..., as_expected);
      if (reply) {
        result = number_in(*reply);
      } else {
        result = unexpected(reply.error());
      }
    }
  } catch (const rpc_error& e) {
    result = unexpected(e.error());
  }
  w.ends(me, id, result);
  w.ends_in_time(id);
}
/// With bytes of `id` there and of its reply back.
asio::awaitable<void> finish_much(worker& me, std::uint32_t to, duration limit, bool sure) {
  const std::uint64_t id = witness::current->calls.size();  // that it will have
  const std::vector<std::uint64_t> bytes(1 + draw(2000), id);
  co_await finish<&much>(me, to, "much", limit, sure, bytes);
}
/// With a value whose codec may throw: at its call only, and with what is documented.
asio::awaitable<void> finish_fragile(worker& me, std::uint32_t to, duration limit, bool sure) {
  witness& w = *witness::current;
  fragile value;
  value.id = w.calls.size();  // that it will have
  value.where = static_cast<fragile::breaks>(draw(5));
  value.lacks_memory = draw(2) == 1;
  const std::uint64_t id = value.id;
  const bool breaks = value.where != fragile::breaks::nowhere;
  co_await finish<&give_back>(me, to, "fragile", limit, sure && !breaks, value);
  const error& why = w.calls[id].failure;
  const bool in_time = limit == duration::zero() || why != errc::timed_out;
  if (!breaks || !sure || !in_time || w.world.faulty()) co_return;
  using enum fragile::breaks;
  const call_progress ran = value.where == written ? call_progress::not_sent
                            : value.where == read  ? call_progress::not_executed
                                                   : call_progress::executed;
  if (why != (value.lacks_memory ? errc::resource_exhausted : errc::not_encodable) ||
      why.ran() != ran) {
    w.complain(w.describe(id) + ", whose codec throws, ends otherwise");
  }
}

asio::awaitable<void> give_up(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, "given up", duration::zero(), false);
  future<std::uint64_t> f;
  try {
    f = me.peer(to).start<&takes_time>(id);
  } catch (const rpc_error&) {
    co_return;
  }
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  w.calls[id].given_up = w.world.now();
}
asio::awaitable<void> give_up_endless(worker& me, std::uint32_t to) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, "endless", duration::zero(), false);
  {
    future<std::uint64_t> f;
    try {
      f = me.peer(to).start<&never_ends>(id, within(std::chrono::seconds(50)));
    } catch (const rpc_error&) {
      co_return;
    }
    if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  }
  w.calls[id].given_up = w.world.now();
}

/// Many at once, which wait for room in the window; some give up.
asio::awaitable<void> start_many(worker& me, std::uint32_t to, bool sure) {
  witness& w = *witness::current;
  struct started {
    std::uint64_t id;
    bool stays;
    future<std::vector<std::uint64_t>> result;
  };
  std::vector<started> all;
  const std::uint32_t n = 3 + draw(3);
  for (std::uint32_t i = 0; i < n; ++i) {
    const bool stays = draw(3) != 2;
    const std::uint32_t size = 1 + draw(700);
    const std::uint64_t id = w.begin(me, to, "one of many", duration::zero(), false);
    try {
      all.push_back(
          {id, stays, me.peer(to).start<&much>(id, std::vector<std::uint64_t>(size, id))});
    } catch (const rpc_error& e) {
      w.ends(me, id, unexpected(e.error()));
    }
  }
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  for (const started& s : all) {
    if (!s.stays) w.calls[s.id].given_up = w.world.now();
  }
  std::erase_if(all, [](const started& s) { return !s.stays; });
  for (started& s : all) {
    w.calls[s.id].awaited = true;
    w.calls[s.id].must_succeed = sure;
    const waits_for its_end(s.id);
    expected<std::uint64_t> result;
    try {
      result = number_in(co_await std::move(s.result).get());
    } catch (const rpc_error& e) {
      result = unexpected(e.error());
    }
    w.ends(me, s.id, result);
  }
}

asio::awaitable<void> start_two(worker& me, std::uint32_t to, std::uint32_t also) {
  witness& w = *witness::current;
  const std::uint64_t a = w.begin(me, to, "started", duration::zero(), true);
  const std::uint64_t b = w.begin(me, also, "started", duration::zero(), true);
  const waits_for end_of_a(a), end_of_b(b);
  future<std::uint64_t> first, second;
  error of_first, of_second;
  try {
    first = me.peer(to).start<&takes_time>(a);
  } catch (const rpc_error& e) {
    of_first = e.error();
  }
  try {
    second = me.peer(also).start<&at_once>(b);
  } catch (const rpc_error& e) {
    of_second = e.error();
  }
  if (of_second) {
    w.ends(me, b, unexpected(of_second));
  } else {
    co_await finish_started(me, b, std::move(second));
  }
  if (of_first) {
    w.ends(me, a, unexpected(of_first));
  } else {
    if (draw(3) == 2) first.request_stop();
    co_await finish_started(me, a, std::move(first));
  }
}

}  // namespace

asio::awaitable<void> finish_started(worker& me, std::uint64_t id, future<std::uint64_t> f) {
  expected<std::uint64_t> result;
  try {
    result = co_await std::move(f).get();
  } catch (const rpc_error& e) {
    result = unexpected(e.error());
  }
  witness::current->ends(me, id, result);
}

asio::awaitable<void> some_call(worker& me, std::uint32_t depth) {
  const std::uint32_t to = draw(me.world_size());
  const duration limit = draw(3) == 0 ? duration::zero() : draw_duration();
  const bool of_main = depth == 2;  // what others call inherits a deadline
  switch (draw(12)) {
  case 10:
    co_await start_many(me, to, of_main);
    break;
  case 11:
    co_await finish_fragile(me, to, limit, of_main);
    break;
  case 8:
    co_await finish_much(me, to, limit, of_main);
    break;
  case 9:
    co_await give_up_endless(me, to);
    break;
  case 0:
    co_await finish<&at_once>(me, to, "at once", limit, of_main);
    break;
  case 1:
    co_await finish<&on_pool>(me, to, "on the pool", limit, of_main);
    break;
  case 2:
    co_await finish<&takes_time>(me, to, "takes time", limit, of_main);
    break;
  case 3:
    co_await finish<&throws>(me, to, "throws", limit, false);
    break;
  case 4:
    if (depth > 0) {
      co_await finish<&calls_on>(me, to, "calls on", limit, of_main, depth - 1);
    } else {
      co_await finish<&at_once>(me, to, "at once", limit, of_main);
    }
    break;
  case 5:
    co_await start_two(me, to, draw(me.world_size()));
    break;
  case 6:
    co_await give_up(me, to);
    break;
  default: {
    const std::uint64_t id = witness::current->begin(me, to, "post", duration::zero(), false);
    try {
      me.peer(to).post<&one_way>(id);
      witness::current->calls[id].accepted = true;
    } catch (const rpc_error&) {
    }
  }
  }
}

asio::awaitable<void> one_way(worker& me, std::uint64_t id) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  // The run does not end before it has: it waits for requests, also for those of requests.
  if (draw(3) == 2) {
    const std::uint32_t to = draw(me.world_size());
    co_await finish<&at_once>(me, to, "of a post", duration::zero(), true);
  }
  witness::current->calls.at(id).finished = true;
}

asio::awaitable<void> silence(worker& me) {
  witness& w = *witness::current;
  // bounded: by the world's time
  while (!w.all_mains_done()) co_await sleep_for(me, std::chrono::milliseconds(20));
  co_await sleep_for(me, std::chrono::seconds(1));
}

/// Once nothing goes wrong any more, and everybody has heard of whom has been lost.
asio::awaitable<void> afterwards(worker& me) {
  witness& w = *witness::current;
  const duration until = w.faults_over + std::chrono::seconds(7);
  co_await sleep_for(me, until - (w.world.now() - sim::timeline::beginning));
  for (std::uint32_t to = 0; to < me.world_size(); ++to) {
    const std::uint64_t id = w.calls.size();  // that it will have
    co_await finish<&at_once>(me, to, "afterwards", duration::zero(), false);
    const seen_call& c = w.calls[id];
    const bool lives = w.world.at(to).alive();
    if (lives && c.failure == errc::timed_out && !w.may_be_missed(c, c.failure)) {
      w.complain(w.describe(id) + " found nobody, though faults have ended");
    }
  }
}

asio::awaitable<void> some_program(worker& me, std::uint32_t steps) {
  const inside_now lives;
  try {
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      co_await some_call(me, 2);
    }
    witness& w = *witness::current;
    if (draw(4) == 3 && w.world.faulty()) co_await afterwards(me);
    w.mains_done.push_back(me.rank());
    if (w.is_quiet_at_the_end) {
      co_await silence(me);
      co_await must_be_quiet(me);
    }
  } catch (const std::exception& e) {
    witness::current->mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
