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
asio::awaitable<void> one_way(worker& me, std::uint64_t id) {
  const inside_now lives;
  witness::current->runs(id, me.rank());
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
}

namespace {

template <auto F, class... Args>
asio::awaitable<void> finish(worker& me, std::uint32_t to, const char* style, duration limit,
                             bool sure, Args... more) {
  witness& w = *witness::current;
  const std::uint64_t id = w.begin(me, to, style, limit, true);
  w.calls[id].must_succeed = sure && limit == duration::zero();
  const waits_for its_end(id);
  expected<std::uint64_t> result;
  try {
    if (limit > duration::zero()) {
      result = co_await me.peer(to).call<F>(id, more..., within(limit), as_expected);
    } else {
      result = co_await me.peer(to).call<F>(id, more..., as_expected);
    }
  } catch (const rpc_error& e) {
    result = unexpected(e.error());
  }
  w.ends(me, id, result);
}

/// Waits for what was started, or gives it up.
asio::awaitable<void> finish_started(worker& me, std::uint64_t id, future<std::uint64_t> f) {
  expected<std::uint64_t> result;
  try {
    result = co_await std::move(f).get();
  } catch (const rpc_error& e) {
    result = unexpected(e.error());
  }
  witness::current->ends(me, id, result);
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

asio::awaitable<void> some_call(worker& me, std::uint32_t depth) {
  const std::uint32_t to = draw(me.world_size());
  const duration limit = draw(3) == 0 ? duration::zero() : draw_duration();
  const bool of_main = depth == 2;  // what others call inherits a deadline
  switch (draw(8)) {
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
    } catch (const rpc_error&) {
    }
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
    witness::current->mains_done.push_back(me.rank());
  } catch (const std::exception& e) {
    witness::current->mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
