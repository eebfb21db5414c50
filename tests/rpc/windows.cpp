// SPDX-License-Identifier: BSL-1.0
// What a peer can make a worker hold, over the wire.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/co_spawn.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <core/bounded_wait.hpp>
#include <future>
#include <mutex>
#include <rpc/cluster.hpp>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace small_windows {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::call_progress;
using weft::errc;
using weft::options;
using weft::worker;

constexpr std::uint64_t kib = 1024;
/// Clusters' members are made before options reach them, so tests set both.
void set_window(cluster& c, std::uint64_t bytes) { weft::testing::set_windows(c.members(), bytes); }
options with_window(unsigned io_threads, std::uint64_t bytes) {
  options o = with_io_threads(io_threads);
  o.window_bytes = bytes;
  return o;
}

std::atomic<int> begun{0};
class door {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++begun;
    opened_.wait_for(lock, 60s, [&] { return open_; });
  }
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
} door;
int wait_at_door(int n) {
  door.pass();
  return n;
}
int twice(int n) { return 2 * n; }

template <class Main>
void over_all(std::uint32_t size, std::uint64_t window, Main main_) {
  for (const auto [how, io_threads] : ways(2)) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    cluster workers(size, how, with_window(io_threads, window));
    set_window(workers, window);
    for (const auto& end : workers.run(main_)) {
      INFO(end.message());
      CHECK_FALSE(end);
    }
  }
}

TEST_CASE(
    "window: full, start and post are refused, calls wait in line; with room all are served") {
  over_all(2, 4 * kib, [](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    begun = 0;
    door.set(false);
    const auto p = me.peer(1);
    std::vector<weft::future<int>> held;
    // The pool's one thread begins the first, which frees its room: four more wait.
    held.push_back(p.start<&wait_at_door>(0));
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (begun == 0 && std::chrono::steady_clock::now() < limit) {
      co_await asio::post(asio::use_awaitable);
    }
    // Until nothing has become free for a while: credit for the first is under way.
    int refused = 0;
    asio::steady_timer pause(weft::detail::context_of(me));
    for (int i = 1; i < 200 && refused < 3; ++i) {
      try {
        held.push_back(p.start<&wait_at_door>(i));
        refused = 0;
        continue;
      } catch (const weft::rpc_error& e) {
        CHECK(e.error() == errc::too_many_calls);
        ++refused;
      }
      pause.expires_after(20ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    CHECK(refused == 3);
    CHECK(held.size() >= 4);
    CHECK(held.size() <= 6);
    CHECK_THROWS_AS(p.post<&twice>(1), weft::rpc_error);
    const auto late = co_await failure_of(p.call<&twice>(1, weft::within(30ms), as_expected));
    CHECK(late == errc::timed_out);
    CHECK(late.ran() == call_progress::not_sent);
    CHECK(
        late.message().find("the window that the peer grants (4 KiB, its options.window_bytes)") !=
        std::string::npos);
    std::vector<int> order;
    auto waits = [](weft::peer to, int n, std::vector<int>& out) -> asio::awaitable<void> {
      CHECK(co_await to.call<&twice>(n) == 2 * n);
      out.push_back(n);
    };
    std::vector<weft::future<void>> waiting;
    for (int i = 0; i < 50; ++i) waiting.push_back(me.spawn(waits(p, i, order)));
    door.set(true);
    for (std::size_t i = 0; i < held.size(); ++i) static_cast<void>(co_await std::move(held[i]));
    for (auto& w : waiting) co_await std::move(w);
    CHECK(order.size() == 50);
    CHECK(std::is_sorted(order.begin(), order.end()));  // first come, first served, one pool thread
    CHECK(co_await p.call<&twice>(21) == 42);
  });
}

asio::awaitable<int> ping_pong(worker& me, int depth) {
  if (depth == 0) co_return 0;
  co_return 1 + co_await me.peer(1 - me.rank()).call<&ping_pong>(depth - 1);
}

TEST_CASE("window: deep nested calls to and fro from both sides, with room for four requests") {
  over_all(2, 4 * kib, [](worker& me) -> asio::awaitable<void> {
    CHECK(co_await me.peer(1 - me.rank()).call<&ping_pong>(1000) == 1000);
  });
}

asio::awaitable<std::size_t> length(std::string s) { co_return s.size(); }
std::string text(std::size_t n) { return std::string(n, 'x'); }

TEST_CASE("window: requests larger than the window go one after another") {
  over_all(2, 4 * kib, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1 - me.rank());
    auto one = [](weft::peer to, std::size_t n) -> asio::awaitable<void> {
      CHECK(co_await to.call<&length>(std::string(n, 'x')) == n);
    };
    std::vector<weft::future<void>> all;
    for (std::size_t i = 0; i < 30; ++i) all.push_back(me.spawn(one(p, 100'000 + i)));
    for (auto& f : all) co_await std::move(f);
  });
}

TEST_CASE("window: both sides owe each other more replies than either may keep") {
  over_all(2, 64 * kib, [](worker& me) -> asio::awaitable<void> {
    const auto p = me.peer(1 - me.rank());
    auto one = [](weft::peer to, std::size_t n) -> asio::awaitable<void> {
      const std::string got = co_await to.call<&text>(n);
      CHECK(got.size() == n);
    };
    std::vector<weft::future<void>> all;
    for (std::size_t i = 0; i < 60; ++i) all.push_back(me.spawn(one(p, 300'000 + i)));
    for (auto& f : all) co_await std::move(f);
  });
}

weft::intrusive_ptr<weft::event> kept;  // of the worker that serves, on its thread
asio::awaitable<void> close_keeper() {
  kept = weft::make_intrusive<weft::event>();
  co_return;
}
asio::awaitable<std::size_t> keep(std::string s) {
  co_await weft::event::async_wait(kept, asio::use_awaitable);
  co_return s.size();
}
asio::awaitable<void> open_keeper() {
  kept->set();
  co_return;
}

TEST_CASE("window: what coroutine functions that wait were given counts until they end") {
  for (const bool of_link : {true, false}) {
    for (const auto [how, io_threads] : ways(2)) {
      CAPTURE(of_link);
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      options o = with_io_threads(io_threads);
      (of_link ? o.bounds.link_tensor_bytes : o.bounds.worker_tensor_bytes) = 1024 * kib;
      cluster workers(2, how, o);
      const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
        if (me.rank() != 0) co_return;
        const auto p = me.peer(1);
        for (int round = 0; round < 3; ++round) {
          co_await p.call<&close_keeper>();
          std::vector<weft::future<std::size_t>> all;
          for (int n = 0; n < 8; ++n) all.push_back(p.start<&keep>(std::string(200 * kib, 'x')));
          CHECK(co_await p.call<&twice>(21) == 42);  // plain ones go on
          // All that have room wait, the others were refused as they came.
          for (std::size_t n = 5; n < 8; ++n) {
            const auto e = co_await failure_of(std::move(all[n]));
            CHECK(e == errc::resource_exhausted);
            CHECK(e.ran() == call_progress::not_executed);
            CHECK(e.message().find("bytes of arguments") != std::string::npos);
          }
          co_await p.call<&open_keeper>();
          for (std::size_t n = 0; n < 5; ++n) {
            CHECK(co_await std::move(all[n]) == 200 * kib);
          }
        }
      });
      for (const auto& end : ends) {
        INFO(end.message());
        CHECK_FALSE(end);
      }
    }
  }
  kept = nullptr;
}

std::atomic<int> taken{0};
void take(std::string) { ++taken; }

TEST_CASE("window: several threads that post at once, and calls beside them, never send too much") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    constexpr std::uint64_t window = 4 * kib;
    cluster workers(2, over::tcp, with_window(io_threads, window));
    set_window(workers, window);
    const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      taken = 0;
      const auto p = me.peer(1);
      CHECK(co_await p.call<&twice>(21) == 42);
      constexpr int each = 150;
      std::atomic<int> posted{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
          for (int i = 0; i < each; ++i) {
            bool sent = false;
            for (bounded_wait until("there is room"); until.not_yet(sent);) {
              try {
                p.post<&take>(std::string(3000, 'x'));
                sent = true;
              } catch (const weft::rpc_error& e) {
                if (e.error() != errc::too_many_calls) throw;
                std::this_thread::yield();
              }
            }
            ++posted;
          }
        });
      }
      for (bounded_wait until("all are posted"); until.not_yet(posted == 3 * each);) {
        CHECK(co_await p.call<&length>(std::string(2000, 'y')) == 2000);
      }
      for (auto& t : threads) t.join();
      for (bounded_wait until("all have come"); until.not_yet(taken == 3 * each);) {
        CHECK(co_await p.call<&twice>(21) == 42);
      }
    });
    for (const auto& end : ends) {
      INFO(end.message());
      CHECK_FALSE(end);
    }
  }
}

/// A call that finds room, and another thread whose post takes it before the call is queued.
struct race {
  std::counting_semaphore<> passes{0};  // of those that keep the pool's thread of the callee
  std::atomic<bool> post_found_room{false};
  std::binary_semaphore go{0};
  std::binary_semaphore posted{0};
  std::atomic<bool> beaten{false};
  std::atomic<int> written{0};  // the call, so often
  std::mutex mutex;
  std::vector<int> came;  // in this order
};
std::atomic<race*> racing{nullptr};

/// 0: what is posted; 1: the call that it beats.
struct racer {
  static constexpr std::string_view weft_structure = "small_windows::racer 1";
  int n = 0;
};
/// Of a message that is about to be queued.
struct starting_gun : weft::message_extension {
  void finish(weft::message&) override {
    race& r = *racing;
    if (r.beaten.exchange(true)) return;
    r.go.release();
    CHECK(r.posted.try_acquire_for(wait_patience));
  }
};
void weft_encode(weft::writer& w, const racer& value) {
  race& r = *racing;
  if (value.n == 0) {
    r.post_found_room = true;
    CHECK(r.go.try_acquire_for(wait_patience));
  }
  if (value.n == 1) {
    ++r.written;
    static_cast<void>(w.extension<starting_gun>());
  }
  w.number(value.n);
}
racer weft_decode(weft::reader& r, std::type_identity<racer>) { return {r.number<int>()}; }

void held_up() { CHECK(racing.load()->passes.try_acquire_for(wait_patience)); }
void arrive(racer who) {
  const std::lock_guard lock(racing.load()->mutex);
  racing.load()->came.push_back(who.n);
}
asio::awaitable<void> call_arrive(weft::peer to, int n) { co_await to.call<&arrive>(racer{n}); }
/// All that was on its way to this thread has come.
asio::awaitable<void> settle() {
  for (int i = 0; i < 20; ++i) co_await asio::post(asio::use_awaitable);
}

/// Another executor, whose thread says how often it has written the call and passed it on.
class other_place {
 public:
  asio::io_context context;
  std::atomic<int> passed_on{0};
  ~other_place() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_{[this] {
    while (!over_) {  // bounded: by its owner's life
      context.restart();
      context.run_one_for(1ms);
      passed_on = racing.load()->written.load();
    }
  }};
};

TEST_CASE("window: a call that is beaten to room by another thread keeps its place in line") {
  for (const bool elsewhere : {false, true}) {
    CAPTURE(elsewhere);
    over_all(2, 4 * kib, [elsewhere](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      race r;
      racing = &r;
      other_place other;
      const auto p = me.peer(1);
      std::thread poster([&] {
        p.post<&arrive>(racer{0});
        r.posted.release();
      });
      for (bounded_wait until("the post has found room"); until.not_yet(r.post_found_room);) {
        co_await asio::post(asio::use_awaitable);
      }
      // The pool's one thread begins the first, which frees its room: four more wait.
      std::vector<weft::future<void>> held;
      for (bounded_wait until("the window is full"); until.not_yet(held.size() == 5);) {
        try {
          held.push_back(p.start<&held_up>());
        } catch (const weft::rpc_error& e) {
          CHECK(e.error() == errc::too_many_calls);
        }
        co_await asio::post(asio::use_awaitable);
      }
      std::vector<weft::future<void>> waiting;
      std::future<void> there;
      if (elsewhere) {
        there = asio::co_spawn(other.context, call_arrive(p, 1), asio::use_future);
        for (bounded_wait until("it is in line"); until.not_yet(other.passed_on == 1);) {
          co_await asio::post(asio::use_awaitable);
        }
      } else {
        waiting.push_back(me.spawn(call_arrive(p, 1)));
      }
      co_await settle();
      for (const int n : {2, 3}) waiting.push_back(me.spawn(call_arrive(p, n)));
      co_await settle();
      r.passes.release(1);
      for (bounded_wait until("it was beaten"); until.not_yet(r.beaten);) {
        co_await asio::post(asio::use_awaitable);
      }
      poster.join();
      if (elsewhere) {
        for (bounded_wait until("it is in line again"); until.not_yet(other.passed_on == 2);) {
          co_await asio::post(asio::use_awaitable);
        }
        co_await settle();
      }
      r.passes.release(4);
      for (auto& h : held) co_await std::move(h);
      for (auto& w : waiting) co_await std::move(w);
      if (elsewhere) {
        for (bounded_wait until("it is over");
             until.not_yet(there.wait_for(0s) == std::future_status::ready);) {
          co_await asio::post(asio::use_awaitable);
        }
        there.get();
      }
      CHECK(r.written == 2);
      const std::lock_guard lock(r.mutex);
      CHECK(r.came == std::vector<int>{0, 1, 2, 3});
    });
  }
}

}  // namespace small_windows
