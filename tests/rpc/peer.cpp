// SPDX-License-Identifier: BSL-1.0
// Calls that succeed: every style, injection, and way to wait.
#include <weft/core/task_group.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/this_coro.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <rpc/cluster.hpp>
#include <rpc/said.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace peer_calls {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::caller;
using weft::immediate;
using weft::worker;

int add(int a, int b) { return a + b; }
int broken_sum(int) { throw std::runtime_error("no sum"); }
std::string greet(const std::string& name) { return "hello " + name; }
immediate<int> square(int x) { return x * x; }
asio::awaitable<int> add_later(int a, int b) {
  co_await asio::post(asio::use_awaitable);
  co_return a + b;
}
asio::awaitable<std::string> whose(worker& me, int x) {
  co_return me.name() + ":" + std::to_string(x);
}
std::string who_called(const caller& from, std::string text) {
  return std::string(from.name()) + "->" + from.self().name() + ":" + text;
}
immediate<std::uint32_t> calling_rank(const caller& from) { return from.rank(); }
asio::awaitable<std::uint32_t> calling_rank_later(const caller& from) {
  co_await asio::post(asio::use_awaitable);
  co_return from.rank();
}
void nothing() {}
asio::awaitable<void> nothing_later() { co_return; }
immediate<void> nothing_here() { return {}; }

struct shape {
  std::string name;
  std::vector<double> sides;
  std::optional<int> color;
  friend bool operator==(const shape&, const shape&) = default;
};
shape scale(shape s, double by) {
  for (double& side : s.sides) side *= by;
  return s;
}
std::map<std::string, std::vector<int>> count(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<int>> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    out[words[i]].push_back(static_cast<int>(i));
  }
  return out;
}
std::unique_ptr<int> through(std::unique_ptr<int> p) { return p; }

/// Runs on the pool, not on the worker's thread.
bool on_pool(worker& me) {
  return !weft::detail::context_of(me).get_executor().running_in_this_thread();
}
asio::awaitable<bool> on_worker_thread(worker& me) {
  co_return weft::detail::context_of(me).get_executor().running_in_this_thread();
}

asio::awaitable<void> call_everything(worker& me) {
  if (me.rank() != 0) co_return;
  for (const char* name : {"worker1", "worker0"}) {  // another one, and oneself
    CAPTURE(name);
    const auto p = me.peer(name);
    CHECK(co_await p.call<&add>(1, 2) == 3);
    CHECK(co_await p.call<&greet>("bob") == "hello bob");
    CHECK(co_await p.call<&square>(7) == 49);
    CHECK(co_await p.call<&add_later>(3, 4) == 7);
    CHECK(co_await p.call<&whose>(5) == std::string(name) + ":5");
    CHECK(co_await p.call<&who_called>("x") == "worker0->" + std::string(name) + ":x");
    CHECK(co_await p.call<&calling_rank>() == 0);
    CHECK(co_await p.call<&calling_rank_later>() == 0);
    co_await p.call<&nothing>();
    co_await p.call<&nothing_later>();
    co_await p.call<&nothing_here>();
    const shape s{"box", {1, 2.5}, 3};
    CHECK(co_await p.call<&scale>(s, 2.0) == shape{"box", {2, 5}, 3});
    const std::vector<std::string> words{"a", "b", "a"};
    const auto counted = co_await p.call<&count>(words);
    CHECK(counted.at("a") == std::vector<int>{0, 2});
    CHECK(*co_await p.call<&through>(std::make_unique<int>(11)) == 11);
    CHECK(co_await p.call<&on_pool>());
    CHECK(co_await p.call<&on_worker_thread>());
    const std::string large(3 << 20, 'x');
    CHECK((co_await p.call<&greet>(large)).size() == large.size() + 6);
    const auto value = co_await p.call<&add>(20, 22, weft::as_expected, weft::within(10s));
    CHECK(value.value() == 42);
    const auto none = co_await p.call<&nothing>(weft::within(10s), weft::as_expected);
    CHECK(none.has_value());
  }
}

TEST_CASE("peer: every style and injection, over every transport, to another and to oneself") {
  everywhere(2, call_everything);
}

TEST_CASE("peer: names, ranks, incarnations and transports") {
  everywhere(3, [](worker& me) -> asio::awaitable<void> {
    CHECK(me.world_size() == 3);
    CHECK(me.name() == "worker" + std::to_string(me.rank()));
    const auto p = me.peer((me.rank() + 1) % 3);
    CHECK(p.name() == "worker" + std::to_string((me.rank() + 1) % 3));
    CHECK(p == me.peer(p.name()));
    CHECK(p.incarnation() == me.members().members[p.rank()].incarnation);
    CHECK(me.peer(static_cast<int>(p.rank())) == p);
    co_await p.call<&nothing>();
    CHECK_FALSE(p.transport().empty());
    co_await me.peer(me.rank()).call<&nothing>();
    CHECK(me.peer(me.rank()).transport() == "self");
    const auto even = me.peers("even");
    CHECK(even.size() == 2);
    CHECK(me.peers("nobody").empty());
  });
}

TEST_CASE("peer: arguments are converted and held before call returns") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    std::string text = "first";
    auto call = p.call<&greet>(text);
    auto started = p.start<&greet>(text);
    text = "changed";
    CHECK(co_await std::move(call) == "hello first");
    CHECK(co_await std::move(started) == "hello first");
    CHECK(co_await p.call<&add>(short{2}, 3L) == 5);
  });
}

std::atomic<int> started_count{0};
immediate<void> count_start() {
  ++started_count;
  return {};
}

TEST_CASE("peer: start is under way before it is awaited; futures complete in any order") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    started_count = 0;
    auto first = p.start<&count_start>();
    co_await p.call<&nothing_here>();  // behind it on the same link
    CHECK(started_count == 1);
    co_await std::move(first);
    std::vector<weft::future<int>> futures;
    for (int i = 0; i < 100; ++i) futures.push_back(p.start<&add>(i, i));
    for (int i = 99; i >= 0; --i) {
      CHECK(co_await futures[static_cast<std::size_t>(i)].copy() == 2 * i);
    }
  });
}

TEST_CASE("peer: start from a thread of the pool") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    std::vector<weft::future<int>> futures;
    std::thread other([&] {
      for (int i = 0; i < 10; ++i) futures.push_back(me.peer(1).start<&add>(i, 1));
    });
    other.join();
    int sum = 0;
    for (auto& f : futures) sum += co_await std::move(f);
    CHECK(sum == 55);
  });
}

std::mutex posted_lock;
std::vector<int> posted;
void note(int value) {
  const std::lock_guard hold(posted_lock);
  posted.push_back(value);
}
immediate<void> note_here(int value) {
  note(value);
  return {};
}
immediate<void> fail_here() { throw std::runtime_error("nobody hears this"); }

TEST_CASE("peer: posts arrive in order; their errors are counted there") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    posted.clear();
    const auto p = me.peer(1);
    for (int i = 0; i < 50; ++i) p.post<&note_here>(i);
    p.post<&fail_here>();
    p.post<&fail_here>();
    co_await p.call<&nothing_here>();
    const std::lock_guard hold(posted_lock);
    CHECK(posted.size() == 50);
    CHECK(std::is_sorted(posted.begin(), posted.end()));
    CHECK(me.stats().calls >= 53);
  });
  cluster workers(2, over::tcp);
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) {
      for (int i = 0; i < 3; ++i) me.peer(1).post<&fail_here>();
      co_await me.peer(1).call<&nothing_here>();
    }
  });
  CHECK_FALSE(ends[0]);
  CHECK(workers.at(1).stats().posts_failed == 3);
}

void fail_too() { throw std::runtime_error("no disk"); }

TEST_CASE("peer: the first failing post of each function is said once, with who posted and why") {
  const said here;
  cluster workers(3, over::tcp);
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 1) {
      for (int i = 0; i < 3; ++i) me.peer(1).post<&fail_too>();
      co_await me.peer(1).call<&nothing_here>();
    }
  });
  for (const auto& e : ends) CHECK_FALSE(e);
  CHECK(workers.at(1).stats().posts_failed == 6);
  INFO(here.text());
  CHECK(here.times("weft: worker1: a post of 'peer_calls::fail_too' by worker 'worker") == 1);
  CHECK(here.times("no disk") == 1);
}

TEST_CASE("peer: a rank may be of any integral type, and a bad one is named as it was given") {
  run_well(2, over::inproc, {}, [](worker& me) -> asio::awaitable<void> {
    CHECK(me.peer(std::size_t{1}).rank() == 1);
    CHECK(me.peer(1L).rank() == 1);
    CHECK(me.peer(std::uint8_t{1}).rank() == 1);
    const auto refusal = [&me](auto rank) -> std::string {
      try {
        return std::to_string(me.peer(rank).rank());
      } catch (const weft::rpc_error& e) {
        return e.what();
      }
    };
    CHECK(refusal(-1).find("there is no rank -1;") != std::string::npos);
    CHECK(refusal(~std::size_t{}).find("no rank 18446744073709551615;") != std::string::npos);
    CHECK(refusal(std::size_t{1} << 32).find("no rank 4294967296;") != std::string::npos);
    co_return;
  });
}

TEST_CASE("peer: the world of one has one worker, in words too") {
  run_well(1, over::inproc, {}, [](worker& me) -> asio::awaitable<void> {
    try {
      static_cast<void>(me.peer(1));
      FAIL("there is no rank 1");
    } catch (const weft::rpc_error& e) {
      CHECK(e.error().detail().text == "there is no rank 1; the world has 1 worker");
    }
    co_return;
  });
}

TEST_CASE("peer: a task group drops the result of a call, and has its error") {
  run_well(2, over::tcp, {}, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1);
    co_await weft::with_task_group([&](weft::task_group& group) -> asio::awaitable<void> {
      group.spawn(p.call<&add>(1, 2));
      group.spawn(p.call<&nothing>());
      co_return;
    });
    std::string what;
    try {
      co_await weft::with_task_group([&](weft::task_group& group) -> asio::awaitable<void> {
        group.spawn(p.call<&add>(1, 2));
        group.spawn(p.call<&broken_sum>(1));
        co_return;
      });
    } catch (const weft::rpc_error& e) {
      what = e.what();
    }
    CHECK(what.find("no sum") != std::string::npos);
  });
}

std::vector<int> begun;  // on worker 1's thread
asio::awaitable<void> begin_in_order(int i) {
  begun.push_back(i);
  co_await asio::post(asio::use_awaitable);
}
asio::awaitable<bool> began_in_order() {
  co_return begun.size() == 200 && std::is_sorted(begun.begin(), begun.end());
}

TEST_CASE("peer: coroutine functions of one link begin in the order of sending") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    begun.clear();
    std::vector<weft::future<void>> futures;
    for (int i = 0; i < 200; ++i) futures.push_back(me.peer(1).start<&begin_in_order>(i));
    for (auto& f : futures) co_await std::move(f);
    CHECK(co_await me.peer(1).call<&began_in_order>());
  });
}

asio::awaitable<int> bounce(worker& me, int left) {
  if (left == 0) co_return 0;
  co_return 1 + co_await me.peer(1 - me.rank()).call<&bounce>(left - 1);
}

TEST_CASE("peer: calls nest between two workers") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 0) CHECK(co_await me.peer(1).call<&bounce>(30) == 30);
  });
}

asio::awaitable<int> fan_out(worker& me, int width) {
  std::vector<weft::future<int>> parts;
  for (int i = 0; i < width; ++i) {
    parts.push_back(me.peer(static_cast<int>(me.world_size()) - 1).start<&add_later>(i, 1));
  }
  int sum = 0;
  for (auto& f : parts) sum += co_await std::move(f);
  co_return sum;
}

TEST_CASE("peer: 1 to 64 to 64 calls do not lock up") {
  everywhere(3, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    std::vector<weft::future<int>> parts;
    for (int i = 0; i < 64; ++i) parts.push_back(me.peer(1).start<&fan_out>(64));
    for (auto& f : parts) CHECK(co_await std::move(f) == 64 * 63 / 2 + 64);
  });
}

TEST_CASE("peer: both sides connect at the same moment, many times") {
  for (const auto [how, io_threads] : ways()) {
    for (int round = 0; round < 10; ++round) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run_well(4, how, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
        co_await weft::with_task_group([&](weft::task_group& g) -> asio::awaitable<void> {
          auto one = [](weft::peer p) -> asio::awaitable<void> {
            for (int i = 0; i < 3; ++i) CHECK(co_await p.call<&add>(i, 1) == i + 1);
          };
          for (std::uint32_t r = 0; r < me.world_size(); ++r) g.spawn(one(me.peer(r)));
          co_return;
        });
      });
    }
  }
}

TEST_CASE("peer: many calls in flight both ways at once") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1 - me.rank());
    std::vector<weft::future<int>> futures;
    for (int i = 0; i < 500; ++i) futures.push_back(p.start<&add_later>(i, 1));
    for (int i = 0; i < 500; ++i) {
      CHECK(co_await futures[static_cast<std::size_t>(i)].copy() == i + 1);
    }
    CHECK((co_await p.call<&greet>(std::string(1 << 20, 'a'))).size() == (1 << 20) + 6);
  });
}

TEST_CASE("peer: large payloads both ways at once do not block each other") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1 - me.rank());
    std::vector<weft::future<std::string>> futures;
    for (int i = 0; i < 4; ++i) futures.push_back(p.start<&greet>(std::string(4 << 20, 'a')));
    for (auto& f : futures) CHECK((co_await std::move(f)).size() == (4 << 20) + 6);
  });
}

TEST_CASE("worker: spawn keeps the scope, stats count") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    auto scope = weft::make_intrusive<weft::call_scope>();
    scope->trace = 77;
    auto inside = [](worker& w) -> asio::awaitable<void> {
      auto child = []() -> asio::awaitable<std::uint64_t> {
        co_await asio::post(asio::use_awaitable);
        co_return weft::this_scope()->trace;
      };
      CHECK(co_await w.spawn(child()) == 77);
    };
    co_await weft::with_scope(weft::detail::context_of(me), scope, inside(me));
    if (me.rank() != 0) co_return;
    const auto before = me.stats();
    co_await me.peer(1).call<&add>(1, 2);
    const auto after = me.stats();
    CHECK(after.calls == before.calls + 1);
    CHECK(after.frames_received > before.frames_received);
    CHECK(after.bytes_received > before.bytes_received);
  });
}

std::uint64_t seen_trace(worker&) { return weft::this_scope()->trace; }
asio::awaitable<std::uint64_t> nested_trace(worker& me) {
  co_return co_await me.peer(0).call<&seen_trace>();
}

TEST_CASE("peer: the trace travels with the call and on to nested ones") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    auto scope = weft::make_intrusive<weft::call_scope>();
    scope->trace = 1234;
    auto inside = [](worker& w) -> asio::awaitable<void> {
      CHECK(co_await w.peer(1).call<&seen_trace>() == 1234);
      CHECK(co_await w.peer(1).call<&nested_trace>() == 1234);
    };
    co_await weft::with_scope(weft::detail::context_of(me), scope, inside(me));
  });
}

}  // namespace peer_calls
