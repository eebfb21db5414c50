// SPDX-License-Identifier: BSL-1.0
// Runs that go on when a worker is lost, and those that do not.
#include <weft/rpc/loss_policy.hpp>

#include <asio/post.hpp>

#include <atomic>
#include <chrono>
#include <core/for_ever.hpp>
#include <functional>
#include <rpc/cluster_bodies.hpp>
#include <rpc/witness.hpp>
#include <rref/gate.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace losses {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::loss_policy;
using weft::options;
using weft::worker;
using state = weft::link::state;

TEST_CASE("on_loss: a policy says without which roles the run goes on") {
  const loss_policy ends;
  const loss_policy goes_on = loss_policy::go_on();
  const loss_policy some = loss_policy::go_on_without({"client", "probe"});
  for (const char* role : {"client", "probe", "server", ""}) {
    CAPTURE(role);
    CHECK_FALSE(ends.goes_on_without(role));
    CHECK(goes_on.goes_on_without(role));
    CHECK(some.goes_on_without(role) == (role == std::string("client") || role[0] == 'p'));
  }
  CHECK_FALSE(loss_policy::go_on_without({}).goes_on_without(""));
  CHECK(loss_policy::go_on_without({""}).goes_on_without(""));
  CHECK_FALSE(options{}.on_loss.goes_on_without(""));
}

int add(int a, int b) { return a + b; }
std::atomic<int> waiting{0};
std::atomic<std::uint32_t> greeted{0};
asio::awaitable<void> wait_for_ever() {
  ++waiting;
  co_await for_ever();
}
/// Returns when the first so many ranks have greeted each other.
asio::awaitable<void> greet(worker& me, std::uint32_t first_ranks) {
  for (std::uint32_t r = 0; r < first_ranks; ++r) {
    CHECK(co_await me.peer(r).call<&add>(1, 2) == 3);
  }
  ++greeted;
  CHECK(co_await eventually([&] { return greeted == first_ranks; }));
}
asio::awaitable<void> greet_all(worker& me) { co_await greet(me, me.world_size()); }

/// A run of its own.
struct watched : cluster_with<witness> {
  watched(std::uint32_t real, over how, const options& o, std::uint32_t strangers = 0)
      : cluster_with(real, how, o, strangers) {
    witness::forget();
    waiting = 0;
    greeted = 0;
  }
};

options with_policy(const loss_policy& policy, unsigned io_threads = 1) {
  options o = with_io_threads(io_threads);
  o.on_loss = policy;
  return o;
}
/// Of four workers the two of role "odd" may go: 1 and 3.
const loss_policy without_odd = loss_policy::go_on_without({"odd"});

template <class Run>
void in_ways(Run&& run) {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run(how, with_policy(without_odd, io_threads));
  }
}
void check_well_but(std::uint32_t gone, const std::vector<weft::error>& ends) {
  for (std::uint32_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r, ": ", ends[r].message());
    CHECK(static_cast<bool>(ends[r]) == (r == gone));
  }
}

/// Worker 1 is lost in some way while the others wait for it, and have posted to it; they go on.
void lose_one(over how, const options& o,
              const std::function<asio::awaitable<void>(worker&)>& at_one,
              const std::function<asio::awaitable<void>(worker&)>& at_zero, errc its_end) {
  std::atomic<int> heard{0};
  std::vector<weft::error> ends;
  {
    watched all(4, how, o);
    ends = all.run([&](worker& me) -> asio::awaitable<void> {
      co_await greet_all(me);
      if (me.rank() == 1) {
        for (const std::uint32_t r : {0u, 2u, 3u}) me.peer(r).post<&wait_for_ever>();
        co_return co_await at_one(me);
      }
      me.peer(1).post<&wait_for_ever>();
      auto call = me.peer(1).start<&wait_for_ever>(weft::within(1h));
      if (me.rank() == 0) co_await at_zero(me);
      const weft::error e = co_await failure_of(std::move(call));
      CHECK(e == errc::peer_died);
      CHECK(e.detail().peer == "worker1");
      CHECK(me.link_to(1).current_state() == state::down);
      ++heard;
      CHECK(co_await eventually([&] { return heard == 3; }));
      // All three still serve.
      CHECK(witness::lost_to(me.rank()) == std::multiset<std::uint32_t>{1});
      for (const std::uint32_t r : {0u, 2u, 3u})
        CHECK(co_await me.peer(r).call<&add>(r, 1) == r + 1);
      CHECK(co_await failure_of(me.peer(1).call<&add>(1, 1, weft::as_expected)) == errc::peer_died);
    });
  }
  CHECK(heard == 3);
  check_well_but(1, ends);
  INFO(ends[1].message());
  CHECK(ends[1] == its_end);
}
asio::awaitable<void> nothing(worker&) { co_return; }
asio::awaitable<void> stay(worker&) { co_await for_ever(); }
/// The others' calls and posts to worker 1, and its posts to them, are under way.
asio::awaitable<void> all_wait() {
  CHECK(co_await eventually([] { return waiting == 9; }));
}
asio::awaitable<void> fail(worker&) {
  co_await all_wait();
  throw std::runtime_error("the data are gone");
}

TEST_CASE("on_loss: a main that throws leaves alone, and the others go on and end well") {
  in_ways([](over how, const options& o) { lose_one(how, o, fail, nothing, errc::worker_failed); });
}

TEST_CASE("on_loss: a worker whose link to rank 0 breaks is lost to all, and ends by itself") {
  in_ways([](over how, const options& o) {
    const auto cut = [](worker& me) -> asio::awaitable<void> {
      co_await all_wait();
      me.link_to(1).mark_down(weft::error(errc::peer_died, "the test cut the link"));
    };
    lose_one(how, o, stay, cut, errc::peer_died);
  });
}

TEST_CASE("on_loss: a worker that may not go ends the run, though others may") {
  watched all(4, over::tcp, with_policy(without_odd));
  const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 2) throw std::runtime_error("the data are gone");
    co_await me.peer(0).call<&wait_for_ever>(weft::within(1h));
  });
  for (const auto& e : ends) {
    INFO(e.message());
    CHECK(says(e, "worker2"));
    CHECK(says(e, "the data are gone"));
  }
}

TEST_CASE("on_loss: the loss of rank 0 ends the run in any policy") {
  watched all(3, over::tcp, with_policy(loss_policy::go_on()));
  const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 0) throw std::runtime_error("the data are gone");
    co_await me.peer(1).call<&wait_for_ever>(weft::within(1h));
  });
  for (const auto& e : ends) {
    INFO(e.message());
    CHECK(says(e, "worker0"));
  }
}

TEST_CASE("on_loss: a main that cannot bear a loss is the one to name") {
  for (const std::uint32_t who : {0u, 2u}) {
    CAPTURE(who);
    watched all(4, over::tcp, with_policy(without_odd));
    const auto ends = all.run([who](worker& me) -> asio::awaitable<void> {
      co_await greet_all(me);
      if (me.rank() == 1) {
        CHECK(co_await eventually([] { return waiting == 1; }));
        throw std::runtime_error("over");
      }
      if (me.rank() == who) co_await me.peer(1).call<&wait_for_ever>(weft::within(1h));
      co_await stay(me);
    });
    for (const std::uint32_t r : {0u, 2u, 3u}) {
      INFO("rank ", r, ": ", ends[r].message());
      CHECK(ends[r] == (r == who ? errc::worker_failed : errc::peer_died));
      CHECK(ends[r].detail().peer == "worker" + std::to_string(who));
    }
    CHECK(says(ends[1], "over"));
  }
}

TEST_CASE("on_loss: all may go, one after the other, until rank 0 is alone") {
  in_ways([](over how, options o) {
    o.on_loss = loss_policy::go_on();
    watched all(4, how, o);
    const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
      co_await greet_all(me);
      if (me.rank() == 3) throw std::runtime_error("over");
      // The next one when this one has heard that the last is gone.
      const std::uint32_t next = me.rank() + 1;
      CHECK(co_await eventually([&] { return me.link_to(next).current_state() == state::down; }));
      if (me.rank() != 0) throw std::runtime_error("over");
    });
    INFO(ends[0].message());
    CHECK_FALSE(ends[0]);
    for (const std::uint32_t r : {1u, 2u, 3u}) CHECK(ends[r] == errc::worker_failed);
  });
}

std::atomic<int> counted{0};
void count() { ++counted; }
/// Has begun when its link is lost, and ends behind that.
std::atomic<bool> begun{false}, lost_is_told{false};
void end_late() {
  begun = true;
  for (int i = 0; !lost_is_told && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
  ++counted;
}

/// In a run of three, worker 1 loses worker 2, to which it has posted 80 times: 30 of these wait.
std::vector<weft::error> cut_between_others(over how, const options& o) {
  counted = 0;
  begun = lost_is_told = false;
  watched all(3, how, o);
  return all.run([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 1) {
      for (int i = 0; i < 30; ++i) me.peer(2).post<&wait_for_ever>();
      for (int i = 0; i < 49; ++i) me.peer(2).post<&count>();
      CHECK(co_await eventually([] { return waiting == 30 && counted == 49; }));
      me.peer(2).post<&end_late>();
      CHECK(co_await eventually([] { return begun.load(); }));
      me.link_to(2).mark_down(weft::error(errc::peer_died, "the test cut the link"));
    }
    // These mains return, or wait for the verdict.
    if (me.rank() != 2) co_return;
    const auto& to_one = static_cast<weft::engine::link&>(me.link_to(1));
    CHECK(co_await eventually(
        [&] { return to_one.current_state() == state::down && to_one.settled(); }));
    lost_is_told = true;
  });
}
/// What both ends say, whoever is heard first, and how many posts that cost.
bool says_lost_30(const weft::error& e) {
  return says(e, "the test cut the link") && says(e, "(at the other end: ") &&
         says(e, "; 30 of the 80 posts of worker 'worker1' (rank 1) to worker 'worker2' (rank 2) "
                 "did not run to their end");
}

TEST_CASE("on_loss: a link that breaks between two others ends the run, with the posts it lost") {
  for (const auto [how, io_threads] : ways()) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    const auto ends = cut_between_others(how, with_policy(loss_policy(), io_threads));
    for (std::uint32_t r = 0; r < 3; ++r) {
      INFO(ends[r].message());
      CHECK(ends[r] == (r == 2 ? errc::worker_failed : errc::peer_died));
      CHECK(ends[r].detail().peer == "worker2");
      CHECK(says_lost_30(ends[r]));
    }
  }
}

TEST_CASE("on_loss: a link that breaks between two others leaves the one behind that may go") {
  in_ways([](over how, options o) {
    for (const auto& policy : {without_odd, loss_policy::go_on()}) {
      o.on_loss = policy;
      const std::uint32_t left = policy.goes_on_without("even") ? 2 : 1;
      CAPTURE(left);
      const auto ends = cut_between_others(how, o);
      INFO(ends[left].message());
      CHECK(ends[left] == errc::worker_failed);
      CHECK(says_lost_30(ends[left]));
      CHECK_FALSE(ends[3 - left]);
      // The run went on, and not all that was accepted was done.
      INFO(ends[0].message());
      CHECK(ends[0] == errc::peer_died);
      CHECK(ends[0].detail().peer == "worker" + std::to_string(left));
      CHECK(says_lost_30(ends[0]));
    }
  });
}

/// At rank 0: until it has left worker 2 behind.
asio::awaitable<void> wait_for_verdict(worker& me) {
  CHECK(co_await eventually([&] { return me.link_to(2).current_state() == state::down; }));
  lost_is_told = true;
}

TEST_CASE("on_loss: a worker that computes when its link breaks says later what it had posted") {
  options o = with_policy(loss_policy::go_on());
  o.lost_after = 500ms;  // so that rank 0 waits for 2.2 s
  counted = 0;
  lost_is_told = false;
  watched all(3, over::tcp, o);
  const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 0) co_return co_await wait_for_verdict(me);
    if (me.rank() == 2) co_return;
    for (int i = 0; i < 30; ++i) me.peer(2).post<&wait_for_ever>();
    for (int i = 0; i < 50; ++i) me.peer(2).post<&count>();
    CHECK(co_await eventually([] { return waiting == 30 && counted == 50; }));
    me.link_to(2).mark_down(weft::error(errc::peer_died, "the test cut the link"));
    for (int i = 0; !lost_is_told && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
  });
  CHECK(says(ends[2], "how many posts of worker 'worker1' (rank 1) to worker 'worker2' (rank 2)"));
  CHECK_FALSE(ends[1]);
  INFO(ends[0].message());
  CHECK(ends[0].detail().peer == "worker2");
  CHECK(says(ends[0], "30 of the 80 posts"));
}

/// In a run of three that may go on, worker 1 posts to worker 2 so often, and loses it when the first
/// post has begun, which ends behind the verdict.
std::vector<weft::error> cut_behind_late_posts(int posts, unsigned compute_threads) {
  options o = with_policy(loss_policy::go_on());
  o.compute_threads = compute_threads;
  begun = lost_is_told = false;
  watched all(3, over::tcp, o);
  return all.run([posts](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 0) co_return co_await wait_for_verdict(me);
    if (me.rank() == 2) co_return;
    for (int i = 0; i < posts; ++i) me.peer(2).post<&end_late>();
    CHECK(co_await eventually([] { return begun.load(); }));
    me.link_to(2).mark_down(weft::error(errc::peer_died, "the test cut the link"));
  });
}

TEST_CASE("on_loss: a post that runs on when its link breaks is not said to be lost") {
  const auto ends = cut_behind_late_posts(1, options().compute_threads);
  INFO(ends[2].message());
  CHECK(says(ends[2], "1 of the posts of worker 'worker1' (rank 1) to worker 'worker2' (rank 2) "
                      "still ran a second later"));
  CHECK_FALSE(ends[0]);
}

TEST_CASE("on_loss: posts that stand in line for the pool when their link breaks are lost") {
  const auto ends = cut_behind_late_posts(4, 1);
  for (const auto* e : {&ends[0], &ends[2]}) {
    INFO(e->message());
    CHECK(says(*e, "3 of the 4 posts of worker 'worker1' (rank 1) to worker 'worker2' (rank 2) did "
                   "not run to their end"));
    CHECK(says(*e, "1 of the posts"));
  }
}

TEST_CASE("on_loss: a main that fails because of a broken link waits for the verdict") {
  watched all(3, over::tcp, with_policy(loss_policy()));
  const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    if (me.rank() == 1) {
      for (int i = 0; i < 30; ++i) me.peer(2).post<&wait_for_ever>();
      CHECK(co_await eventually([] { return waiting == 30; }));
      me.link_to(2).mark_down(weft::error(errc::peer_died, "the test cut the link"));
      co_await me.peer(2).call<&add>(1, 1);
    }
    co_await stay(me);
  });
  for (const auto& e : ends) {
    INFO(e.message());
    CHECK(says(e, "30 of the 30 posts"));
  }
}

TEST_CASE("on_loss: each that has not greeted rank 0 in time is left behind, or ends the run") {
  for (const bool both_may_go : {true, false}) {
    CAPTURE(both_may_go);
    options o = with_policy(both_may_go ? loss_policy::go_on() : without_odd);
    o.rendezvous_deadline = 1500ms;
    watched all(2, over::tcp, o, 2);  // members 2, "even", and 3, "odd", are not there
    std::atomic<int> told{0};
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      co_await greet(me, 2);
      for (const std::uint32_t r : {2u, 3u}) {
        if (both_may_go) {
          CHECK(co_await eventually([&] { return me.link_to(r).current_state() == state::down; }));
          ++told;
        }
      }
      if (!both_may_go) co_await stay(me);
    });
    for (const auto& e : ends) {
      INFO(e.message());
      CHECK(static_cast<bool>(e) == !both_may_go);
      if (!both_may_go) CHECK(says(e, "worker2"));
    }
    CHECK(told == (both_may_go ? 4 : 0));
  }
}

std::atomic<bool> let_go{true};
std::atomic<bool> is_stuck{false};

TEST_CASE("on_loss: one that may go and alone lost another is left behind, and hears of it") {
  for (const unsigned io_threads : io_ways()) {
    for (const over how : {over::inproc, over::tcp}) {
      CAPTURE(io_threads);
      CAPTURE(name_of(how));
      watched workers(3, how, with_policy(without_odd, io_threads));
      const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
        co_await greet_all(me);
        if (me.rank() != 1) co_return;
        me.link_to(2).mark_down(weft::error(errc::peer_died, "the test cut the link"));
        co_await me.peer(2).call<&add>(1, 1);
      });
      CHECK_FALSE(ends[0]);
      CHECK_FALSE(ends[2]);
      // In its own words, and no other worker is named for it.
      INFO(ends[1].message());
      CHECK(ends[1] == errc::worker_failed);
      CHECK(ends[1].detail().peer == "worker1");
    }
  }
}

TEST_CASE("on_loss: a worker that does not answer at the end is left behind, and hears of it") {
  options o = with_policy(without_odd);
  o.shutdown_deadline = 500ms;
  let_go = is_stuck = false;
  watched all(3, over::tcp, o);
  all.start([](worker& me) -> asio::awaitable<void> {
    co_await greet_all(me);
    // Its own thread is busy from when its main has returned until the others' runs have ended.
    if (me.rank() == 1) {
      asio::post(weft::detail::context_of(me), [] {
        is_stuck = true;
        for (int i = 0; !let_go && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
      });
      co_return;
    }
    CHECK(co_await eventually([] { return is_stuck.load(); }));
  });
  std::thread later([&all] {
    // Rank 0 has left it behind.
    for (int i = 0; all.at(0).link_to(1).current_state() != state::down && i < 60'000; ++i) {
      std::this_thread::sleep_for(1ms);
    }
    let_go = true;
  });
  const auto ends = all.join();
  later.join();
  check_well_but(1, ends);
  INFO(ends[1].message());
  CHECK(says(ends[1], "did not answer by the shutdown deadline of 0.5 s"));
}

}  // namespace losses
