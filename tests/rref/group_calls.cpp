// SPDX-License-Identifier: BSL-1.0
// call_all and broadcast.
#include "objects.hpp"
#include <weft/rref/group_calls.hpp>

#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <array>
#include <chrono>
#include <core/for_ever.hpp>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace rref_tests {

using weft::as_expected;
using weft::errc;
using weft::within;

/// What functions here tell the test, in one process.
std::array<std::atomic<int>, 16> runs_at{};
std::atomic<int> waiting_for_ever{0};
std::atomic<int> cancelled_at_rank{-1};

int add_rank(worker& me, int x) {
  ++runs_at[me.rank()];
  return x + static_cast<int>(me.rank());
}
asio::awaitable<int> add_rank_later(worker& me, int x) { co_return add_rank(me, x); }
weft::immediate<int> add_ten(int x) { return x + 10; }
int odd_ranks_throw(worker& me, int x) {
  if (me.rank() % 2 == 1) throw std::runtime_error("odd");
  return x;
}
asio::awaitable<int> rank_one_throws(worker& me, int) {
  if (me.rank() == 1) {
    co_await eventually([] { return waiting_for_ever == 3; });
    throw std::runtime_error("it is one");
  }
  try {
    ++waiting_for_ever;
    co_await for_ever();
  } catch (const std::system_error&) {
    cancelled_at_rank = static_cast<int>(me.rank());
    throw;
  }
  co_return 0;
}
/// Changes what it gets, in place.
double filled(worker& me, at::Tensor t, const std::vector<std::string>& words,
              std::unique_ptr<int> n) {
  const double sum = t.sum().item<double>();
  t.fill_(static_cast<double>(me.rank()));
  return sum + static_cast<double>(words.size()) + *n;
}
void only_counts(const weft::caller& who, int) { ++runs_at[who.rank()]; }
bool wants_grad(const at::Tensor& t) { return t.requires_grad(); }
asio::awaitable<int> waits_for_ever(worker&, int) {
  co_await for_ever();
  co_return 0;
}
void no_runs() {
  for (auto& n : runs_at) n = 0;
}
std::vector<weft::peer> everybody(worker& me) {
  std::vector<weft::peer> out;
  for (std::uint32_t r = 0; r < me.world_size(); ++r) out.push_back(me.peer(r));
  return out;
}
/// On the worker's thread, whose they are.
asio::awaitable<std::uint64_t> broadcasts_waiting(worker& me) {
  co_return me.use<weft::detail::broadcasts>().waiting();
}
asio::awaitable<bool> no_broadcast_waits(workers& all) {
  for (int i = 0; i < 500; ++i) {
    std::uint64_t waiting = 0;
    for (std::uint32_t r = 0; r < all.size(); ++r) {
      if (!left_behind(all, r)) waiting += co_await all.at(0).peer(r).call<&broadcasts_waiting>();
    }
    if (waiting == 0) co_return true;
    co_await weft::sleep_for(10ms);
  }
  co_return false;
}

TEST_CASE("group: call_all gives results in the order of the peers") {
  workers_everywhere(4, [](workers&, worker& me) -> asio::awaitable<void> {
    const std::vector<weft::peer> some{me.peer(2), me.peer(0), me.peer(3)};
    CHECK((co_await weft::call_all<&add_rank>(some, 5)) == std::vector<int>{7, 5, 8});
    CHECK((co_await weft::call_all<&add_ten>(some, 5, within(5s))) == std::vector<int>(3, 15));
    CHECK((co_await weft::call_all<&only_counts>(some, 5)).size() == 3);
    CHECK((co_await weft::call_all<&add_rank>(std::vector<weft::peer>(), 5)).empty());
  });
}

TEST_CASE("group: call_all shows which calls failed, or throws the first error") {
  run_workers(4, [](workers&, worker& me) -> asio::awaitable<void> {
    const auto all = co_await weft::call_all<&odd_ranks_throw>(everybody(me), 1, as_expected);
    REQUIRE(all.size() == 4);
    CHECK((*all[0] == 1 && *all[2] == 1));
    CHECK(all[1].error() == errc::remote_exception);
    CHECK(all[3].error().detail().peer == me.peer(3).name());
    waiting_for_ever = 0;
    cancelled_at_rank = -1;
    const auto e = co_await thrown_by(weft::call_all<&rank_one_throws>(everybody(me), 1));
    CHECK(e.detail().peer == me.peer(1).name());
    CHECK(co_await eventually([] { return cancelled_at_rank != -1; }));
  });
}

TEST_CASE("group: a broadcast runs once at each peer, whatever their number and order") {
  workers_everywhere(9, [](workers& all, worker& me) -> asio::awaitable<void> {
    std::mt19937 random(7);
    auto peers = everybody(me);
    for (std::size_t n = 0; n <= peers.size(); ++n) {
      std::shuffle(peers.begin(), peers.end(), random);
      const std::vector<weft::peer> some(peers.begin(),
                                         peers.begin() + static_cast<std::ptrdiff_t>(n));
      no_runs();
      std::vector<int> wanted;
      for (const weft::peer& p : some) wanted.push_back(100 + static_cast<int>(p.rank()));
      CHECK((co_await weft::broadcast<&add_rank>(some, 100)) == wanted);
      CHECK((co_await weft::broadcast<&add_rank_later>(some, 100)) == wanted);
      CHECK((co_await weft::broadcast<&add_ten>(some, 100)) == std::vector<int>(n, 110));
      for (const weft::peer& p : some) CHECK(runs_at[p.rank()] == 2);
      CHECK(runs_at[0] + runs_at[1] + runs_at[2] + runs_at[3] + runs_at[4] + runs_at[5] +
                runs_at[6] + runs_at[7] + runs_at[8] ==
            2 * static_cast<int>(n));
    }
    const std::vector<weft::peer> twice(3, me.peer(1));
    CHECK((co_await weft::broadcast<&add_rank>(twice, 1)) == std::vector<int>(3, 2));
    CHECK(co_await no_broadcast_waits(all));
  });
}

TEST_CASE("group: arguments of a broadcast may be changed where they come, and only there") {
  workers_everywhere(8, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor t = at::ones({300, 1000});
    const std::vector<std::string> words{"a", "b"};
    for (int i = 0; i < 5; ++i) {
      const auto sums = co_await weft::broadcast<&filled>(everybody(me), t, words,
                                                          std::make_unique<int>(3), within(30s));
      CHECK(sums == std::vector<double>(8, 300005.0));
    }
    CHECK(t.sum().item<double>() == 300000.0);
    CHECK((co_await weft::broadcast<&wants_grad>(everybody(me), at::ones({3}).requires_grad_())) ==
          std::vector<bool>(8, false));
    CHECK(co_await no_broadcast_waits(all));
  });
}

TEST_CASE("group: many broadcasts at once, of several callers") {
  run_workers(6, over::tcp, with_io_threads(1),
              [](workers& all, worker& me) -> asio::awaitable<void> {
                no_runs();
                std::vector<weft::future<std::vector<int>>> calls;
                for (int i = 0; i < 50; ++i) {
                  calls.push_back(me.spawn(weft::broadcast<&add_rank>(everybody(me), i)));
                }
                for (std::size_t i = 0; i < calls.size(); ++i) {
                  const auto got = co_await std::move(calls[i]).get();
                  REQUIRE(got.size() == 6);
                  for (int r = 0; r < 6; ++r) {
                    CHECK(got[static_cast<std::size_t>(r)] == static_cast<int>(i) + r);
                  }
                }
                for (std::size_t r = 0; r < 6; ++r) CHECK(runs_at[r] == 50);
                CHECK(co_await no_broadcast_waits(all));
              });
}

TEST_CASE("group: errors of a broadcast are those of its calls") {
  run_workers(5, [](workers& all, worker& me) -> asio::awaitable<void> {
    auto four = everybody(me);
    four.pop_back();
    const auto got = co_await weft::broadcast<&odd_ranks_throw>(everybody(me), 1, as_expected);
    REQUIRE(got.size() == 5);
    for (std::uint32_t r = 0; r < 5; ++r) {
      CHECK(got[r].has_value() == (r % 2 == 0));
      if (r % 2 == 1) CHECK(got[r].error().detail().peer == me.peer(r).name());
    }
    waiting_for_ever = 0;
    cancelled_at_rank = -1;
    const auto e = co_await thrown_by(weft::broadcast<&rank_one_throws>(four, 1));
    CHECK(e == errc::remote_exception);
    CHECK(co_await eventually([] { return cancelled_at_rank != -1; }));
    CHECK((co_await thrown_by(weft::broadcast<&waits_for_ever>(everybody(me), 1, within(50ms)))) ==
          errc::timed_out);
    auto given_up = me.spawn(weft::broadcast<&waits_for_ever>(everybody(me), 1));
    for (int i = 0; i < 50; ++i) co_await asio::post(asio::use_awaitable);
    given_up = {};
    CHECK(co_await no_broadcast_waits(all));
  });
}

/// How many bytes of tensors each has sent.
std::vector<std::uint64_t> bytes_sent(workers& all) {
  std::vector<std::uint64_t> out;
  for (std::uint32_t r = 0; r < all.size(); ++r) out.push_back(all.at(r).stats().bytes_sent);
  return out;
}
rref<at::Tensor> keep_large(worker& me) { return me.share(at::ones({1'000'000})); }
double sum_of(const at::Tensor& t) { return t.sum().item<double>(); }

TEST_CASE("group: what goes by reference, or along the tree, does not come through the driver") {
  run_workers(
      9, over::tcp, with_io_threads(0), [](workers& all, worker& me) -> asio::awaitable<void> {
        constexpr std::uint64_t large = 4'000'000, little = 100'000;
        auto before = bytes_sent(all);
        const auto sent = [&](std::uint32_t r) { return all.at(r).stats().bytes_sent - before[r]; };
        const auto r = co_await me.peer(1).call<&keep_large>();
        CHECK((co_await me.peer(2).call<&sum_of>(r)) == 1e6);
        CHECK(co_await eventually([&] { return sent(1) > large; }));  // counted behind it
        CHECK(sent(1) < large + little);
        CHECK(sent(0) < little);
        CHECK(sent(2) < little);

        before = bytes_sent(all);
        auto others = everybody(me);
        others.erase(others.begin());
        co_await weft::broadcast<&sum_of>(others, at::ones({1'000'000}));
        const auto copies = [&] {
          std::uint64_t n = 0;
          for (std::uint32_t rank = 0; rank < 9; ++rank) n += sent(rank) / large;
          return n;
        };
        CHECK(co_await eventually([&] { return copies() == 8; }));
        CHECK(sent(0) / large == 4);  // to 5, 3, 2 and 1
        CHECK(sent(5) / large == 2);  // to 7 and 6
        CHECK(sent(0) % large < little);
      });
}

/// Bytes that cannot be read at one rank.
struct poison {
  std::uint32_t rank = 0;
};
void weft_encode(weft::writer& w, const poison& x) { w.number(x.rank); }
std::atomic<std::uint32_t> poisoned{0};
std::atomic<int> decoded{0};
poison weft_decode(weft::reader& r, std::type_identity<poison>) {
  const auto rank = r.number<std::uint32_t>();
  if (decoded++ == static_cast<int>(poisoned)) r.fail("it is bitter");
  return {rank};
}
std::uint32_t swallow(worker& me, const poison&) { return me.rank(); }

TEST_CASE("group: a worker that cannot read the arguments loses its own result only") {
  run_workers(8, [](workers& all, worker& me) -> asio::awaitable<void> {
    for (std::uint32_t n = 0; n < 8; ++n) {
      poisoned = n;
      decoded = 0;
      const auto got = co_await weft::broadcast<&swallow>(everybody(me), poison(), as_expected);
      REQUIRE(got.size() == 8);
      // Those that were not direct children of the caller are asked again, and can read it then.
      std::size_t failed = 0;
      for (std::uint32_t r = 0; r < 8; ++r) {
        if (got[r]) {
          CHECK(*got[r] == r);
        } else {
          ++failed;
          CHECK(got[r].error() == errc::bad_arguments);
        }
      }
      CHECK(failed <= 1);
    }
    CHECK(co_await no_broadcast_waits(all));
  });
}

TEST_CASE("group: orders of a broadcast that are wrong are refused, and nothing is left") {
  run_workers(3, [](workers& all, worker& me) -> asio::awaitable<void> {
    using Fn = weft::detail::exposed<&add_rank>;
    using weft::detail::broadcast_stop;
    using weft::detail::broadcast_stops;
    const auto carry = [&](std::uint32_t caller, broadcast_stops to) {
      return weft::detail::make_call<weft::detail::carrying<Fn>>(
          me.link_to(1), weft::detail::prepare_nothing{}, caller, std::move(to),
          weft::detail::shared_arguments<Fn::arguments>{std::make_shared<Fn::arguments>(7)},
          as_expected);
    };
    const auto refused = [](const auto& r) { return !r && r.error() == errc::bad_arguments; };
    CHECK(refused(co_await carry(3, {{1, 0}})));          // of nobody
    CHECK(refused(co_await carry(0, {})));                // to nobody
    CHECK(refused(co_await carry(0, {{2, 0}})));          // to another
    CHECK(refused(co_await carry(0, {{1, 0}, {3, 0}})));  // on to nobody
    CHECK(refused(co_await carry(0, broadcast_stops(10'000, broadcast_stop{1, 0}))));
    no_runs();
    const std::vector<weft::peer> one{me.peer(1)};
    CHECK((co_await weft::broadcast<&add_rank>(one, 1)) == std::vector<int>{2});
    CHECK(refused(co_await weft::detail::make_call<weft::detail::broadcasting<Fn>>(
        me.link_to(1), weft::detail::prepare_nothing{}, std::uint64_t{0}, std::uint64_t{0},
        as_expected)));  // it is over
    CHECK(runs_at[1] == 1);
    using later = weft::detail::exposed<&add_rank_later>;
    using other = weft::detail::exposed<&wants_grad>;
    auto call = me.spawn(weft::detail::make_call<weft::detail::broadcasting<later>>(
        me.link_to(1), weft::detail::prepare_nothing{}, std::uint64_t{1}, std::uint64_t{1},
        as_expected));
    const weft::detail::shared_arguments<other::arguments> ones{
        std::make_shared<other::arguments>(at::ones({3}))};
    CHECK(co_await weft::detail::make_call<weft::detail::carrying<other>>(
        me.link_to(1), weft::detail::prepare_nothing{}, std::uint32_t{0}, broadcast_stops{{1, 1}},
        ones, as_expected));
    CHECK(refused(co_await std::move(call).get()));  // it brought another function's
    CHECK(co_await no_broadcast_waits(all));
  });
}

TEST_CASE(
    "group: a broadcast over a lost link costs one result, and what was sent twice runs once") {
  auto goes_on = with_io_threads(0);
  goes_on.on_loss = weft::loss_policy::go_on();
  for (std::uint32_t lost = 1; lost < 8; ++lost) {
    CAPTURE(lost);
    run_workers(8, over::inproc, goes_on, [&](workers& all, worker& me) -> asio::awaitable<void> {
      no_runs();
      auto going = me.spawn(weft::broadcast<&add_rank>(everybody(me), 0, as_expected));
      co_await asio::post(asio::use_awaitable);
      all.at(0).link_to(lost).mark_down(weft::error(errc::peer_died, "pulled"));
      const auto got = co_await std::move(going).get();
      REQUIRE(got.size() == 8);
      for (std::uint32_t r = 0; r < 8; ++r) {
        CHECK(got[r].has_value() == (r != lost));
        CHECK(runs_at[r] <= 1);
        if (r != lost) CHECK(runs_at[r] == 1);
      }
      CHECK(got[lost].error() == errc::peer_died);
    });
  }
}

TEST_CASE("group: calls and arguments of broadcasts meet in every order, and once") {
  std::mt19937 random(50);
  for (int round = 0; round < 3000; ++round) {
    weft::detail::broadcast_numbers at_caller;
    weft::detail::broadcast_arrivals at_callee;
    struct message {
      std::uint64_t number, first_open;
      bool call;
    };
    std::vector<message> on_their_way;
    std::set<std::uint64_t> ran, open;
    std::map<std::uint64_t, weft::intrusive_ptr<weft::detail::broadcast_slot>> claimed;
    for (int step = 0; step < 60; ++step) {
      const auto what = random() % 5;
      if (what == 0) {
        const std::uint64_t n = at_caller.open();
        open.insert(n);
        on_their_way.push_back({n, at_caller.first_open(), true});
        for (unsigned i = random() % 4; i > 0; --i) on_their_way.push_back({n, 0, false});
      } else if (what == 1 && !claimed.empty() && random() % 4 == 0) {  // it is given up there
        at_callee.over(claimed.begin()->first);
        open.erase(claimed.begin()->first);
        at_caller.close(claimed.begin()->first);
        claimed.erase(claimed.begin());
      } else if (!on_their_way.empty()) {
        const auto at =
            on_their_way.begin() + static_cast<std::ptrdiff_t>(random() % on_their_way.size());
        const message m = *at;
        on_their_way.erase(at);
        if (m.call) {
          const auto slot = at_callee.claimed(m.number, m.first_open);
          REQUIRE(slot);
          CHECK_FALSE(at_callee.claimed(m.number, m.first_open));
          claimed[m.number] = slot;
        } else if (const auto slot = at_callee.offered(m.number)) {
          CHECK_FALSE(ran.contains(m.number));
          slot->arguments = std::make_shared<int>(1);
        }
        for (auto c = claimed.begin(); c != claimed.end();) {
          if (!c->second->arguments) {
            ++c;
            continue;
          }
          CHECK(ran.insert(c->first).second);
          at_callee.over(c->first);
          at_caller.close(c->first);
          open.erase(c->first);
          c = claimed.erase(c);
        }
      }
    }
    CHECK(at_callee.waiting() <= on_their_way.size() + open.size());
  }
  // What is over is remembered no longer than the caller has open ones before it.
  weft::detail::broadcast_numbers at_caller;
  weft::detail::broadcast_arrivals at_callee;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t n = at_caller.open();
    REQUIRE(at_callee.claimed(n, at_caller.first_open()));
    at_callee.over(n);
    at_caller.close(n);
  }
  CHECK(at_callee.remembered() <= 1);
  CHECK(at_callee.waiting() == 0);
  CHECK_FALSE(at_callee.offered(3));  // late
  // A call that comes behind the deadline of its arguments is told from one that comes twice.
  const std::uint64_t late = at_caller.open();
  REQUIRE(at_callee.offered(late));
  at_callee.over(late, true);
  CHECK_FALSE(at_callee.claimed(late, at_caller.first_open()));
  CHECK(at_callee.waited_in_vain(late));
  at_callee.over(late);  // it is forgotten
  CHECK(at_callee.waited_in_vain(late));
  CHECK_FALSE(at_callee.waited_in_vain(late - 1));
}

}  // namespace rref_tests
