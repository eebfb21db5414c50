// SPDX-License-Identifier: BSL-1.0
// start and post leave at once, also when their coroutine computes on. Told by the order of events:
// the caller's thread blocks until the callee has run.
#include <weft/rpc/peer.hpp>

#include <asio/steady_timer.hpp>

#include <condition_variable>
#include <mutex>
#include <rpc/cluster.hpp>
#include <vector>

namespace leaving {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::immediate;
using weft::worker;

class counter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  /// Blocks this thread, as a computation does.
  [[nodiscard]] bool reaches(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return count_ >= count; });
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    count_ = 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};
counter ran;

int work() {
  ran.add();
  return 1;
}
immediate<int> work_here() {
  ran.add();
  return 1;
}
asio::awaitable<int> work_later() {
  ran.add();
  co_return 1;
}
int nothing() { return 0; }

enum class resumed_by : std::uint8_t { reply, timer, future, post, traffic };
asio::awaitable<void> resume(worker& me, resumed_by what) {
  switch (what) {
  case resumed_by::reply:
    co_await me.peer(1).call<&nothing>();
    break;
  case resumed_by::timer: {
    asio::steady_timer t(weft::detail::context_of(me), 1ms);
    co_await t.async_wait(asio::use_awaitable);
    break;
  }
  case resumed_by::future: {
    auto f = me.peer(1).start<&nothing>();
    co_await std::move(f);
    break;
  }
  case resumed_by::post:
    co_await asio::post(asio::use_awaitable);
    break;
  case resumed_by::traffic:  // of starts, until the late flush looks seldom
    for (const auto until = std::chrono::steady_clock::now() + 10ms;
         std::chrono::steady_clock::now() < until;) {
      std::vector<weft::future<int>> some;
      for (int i = 0; i < 4; ++i) some.push_back(me.peer(1).start<&nothing>());
      for (auto& f : some) co_await std::move(f);
    }
  }
}

TEST_CASE("leaving: what start and post send is served while the caller computes") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    const auto p = me.peer(1);
    for (const auto what : {resumed_by::reply, resumed_by::timer, resumed_by::future,
                            resumed_by::post, resumed_by::traffic}) {
      CAPTURE(static_cast<int>(what));
      for (const int frames : {1, 2, 40}) {
        CAPTURE(frames);
        ran.clear();
        co_await resume(me, what);
        std::vector<weft::future<int>> started;
        for (int i = 0; i < frames; ++i) {
          started.push_back(i % 3 == 0   ? p.start<&work>()
                            : i % 3 == 1 ? p.start<&work_here>()
                                         : p.start<&work_later>());
        }
        CHECK(ran.reaches(frames));
        for (auto& f : started) CHECK(co_await std::move(f) == 1);
        ran.clear();
        co_await resume(me, what);
        for (int i = 0; i < frames; ++i) p.post<&work>();
        CHECK(ran.reaches(frames));
      }
    }
  });
}

asio::awaitable<void> send_then_compute(weft::peer p, bool& in_time) {
  co_await p.call<&nothing>();
  auto call = [](weft::peer to) -> asio::awaitable<void> { co_await to.call<&work>(); };
  auto other = p.self().spawn(call(p));  // a call of another coroutine in the same turn
  auto f = p.start<&work>();
  in_time = ran.reaches(2);
  co_await std::move(f);
  co_await std::move(other);
}

TEST_CASE("leaving: a computing coroutine does not hold up what others sent in its turn") {
  everywhere(2, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    for (int round = 0; round < 3; ++round) {
      ran.clear();
      bool in_time = false;
      co_await send_then_compute(me.peer(1), in_time);
      CHECK(in_time);
    }
  });
}

}  // namespace leaving
