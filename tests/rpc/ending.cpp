// SPDX-License-Identifier: BSL-1.0
// The end of a run: what was posted is done, what does not end is named, nothing waits for ever.
#include <weft/core/event.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <memory>
#include <new>
#include <rpc/cluster.hpp>
#include <rpc/raw_peer.hpp>
#include <rref/gate.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace endings {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::event;
using weft::make_intrusive;
using weft::options;
using weft::within;
using weft::worker;

constexpr over all_kinds[] = {over::inproc, over::tcp, over::unix_socket};

/// The same run over every transport, with 0, 1 and 2 I/O threads.
template <class Run>
void in_every_way(Run&& run) {
  for (const over how : all_kinds) {
    for (const unsigned io_threads : io_ways(2)) {
      CAPTURE(name_of(how));
      CAPTURE(io_threads);
      run(how, with_io_threads(io_threads));
    }
  }
}
options patient_for(std::chrono::milliseconds deadline, options o) {
  o.shutdown_deadline = deadline;
  return o;
}
void check_all_say(const std::vector<weft::error>& ends, const std::string& text) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r, ": ", ends[r].message());
    CHECK(ends[r]);
    CHECK(says(ends[r], text));
  }
}

std::atomic<int> done{0};
int add(int a, int b) { return a + b; }
void note() { ++done; }
void slow_note() {
  std::this_thread::sleep_for(1ms);
  ++done;
}
asio::awaitable<void> note_later() {
  for (int i = 0; i < 3; ++i) co_await asio::post(asio::use_awaitable);
  ++done;
}
asio::awaitable<void> wait_for_ever() { co_await for_ever(); }

// ── what was posted ──

TEST_CASE("ending: all that was posted before the mains returned is done") {
  in_every_way([](over how, const options& o) {
    done = 0;
    run_well(3, how, o, [](worker& me) -> asio::awaitable<void> {
      for (int i = 0; i < 300; ++i) {
        for (std::uint32_t r = 0; r < me.world_size(); ++r) me.peer(r).post<&note>();
        me.peer(i % 3).post<&note_later>();
        if (i % 10 == 0) me.peer(i % 3).post<&slow_note>();
      }
      co_return;
    });
    CHECK(done == 3 * (3 * 300 + 300 + 30));
  });
}

TEST_CASE("ending: ten thousand posts") {
  for (const unsigned io_threads : io_ways(2)) {
    done = 0;
    run_well(2, over::tcp, with_io_threads(io_threads), [](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      for (int i = 0; i < 10'000; ++i) me.peer(1).post<&note>();
    });
    CHECK(done == 10'000);
  }
}

/// One that posts the next, to the next worker.
asio::awaitable<void> chain(worker& me, int left) {
  if (left % 3 == 0) co_await asio::post(asio::use_awaitable);
  ++done;
  if (left > 1) me.peer((me.rank() + 1) % me.world_size()).post<&chain>(left - 1);
}
/// One that posts two others, from the pool.
void tree(worker& me, int depth) {
  ++done;
  if (depth == 0) return;
  for (const std::uint32_t step : {1u, 2u}) {
    me.peer((me.rank() + step) % me.world_size()).post<&tree>(depth - 1);
  }
}

TEST_CASE("ending: what posts post is done, too") {
  in_every_way([](over how, const options& o) {
    done = 0;
    run_well(3, how, o, [](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 1) me.peer(2).post<&chain>(100);
      if (me.rank() == 2) me.peer(0).post<&tree>(7);
      co_return;
    });
    CHECK(done == 100 + 255);
  });
}

void throw_now() {
  ++done;
  throw std::runtime_error("nobody hears this");
}
asio::awaitable<void> throw_later() {
  co_await asio::post(asio::use_awaitable);
  ++done;
  throw std::runtime_error("nor this");
}

TEST_CASE("ending: a post that throws is done as well as another") {
  in_every_way([](over how, const options& o) {
    done = 0;
    run_well(2, how, o, [](worker& me) -> asio::awaitable<void> {
      for (int i = 0; i < 20; ++i) {
        me.peer(1 - me.rank()).post<&throw_now>();
        me.peer(me.rank()).post<&throw_later>();
      }
      co_return;
    });
    CHECK(done == 80);
  });
}

TEST_CASE("ending: calls that were let go are begun, and plain ones finished") {
  in_every_way([](over how, const options& o) {
    done = 0;
    run_well(2, how, o, [](worker& me) -> asio::awaitable<void> {
      for (int i = 0; i < 20; ++i) me.peer(1 - me.rank()).start<&slow_note>().detach();
      me.peer(1 - me.rank()).start<&wait_for_ever>(within(1h)).detach();
      co_return;
    });
    CHECK(done == 40);
  });
}

// ── what does not end ──

TEST_CASE("ending: a post that does not end is cut at the deadline, counted, and said") {
  for (const unsigned io_threads : io_ways(2)) {
    CAPTURE(io_threads);
    cluster workers(3, over::tcp, patient_for(300ms, with_io_threads(io_threads)));
    const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 2) co_return;
      for (int i = 0; i < 3; ++i) me.peer(1).post<&wait_for_ever>();
    });
    check_all_say(ends, "'worker1'");
    check_all_say(ends, "3 requests of worker 'worker2'");
    check_all_say(ends, "shutdown deadline of 0.3 s");
    CHECK(ends[1] == errc::worker_failed);
  }
}

std::atomic<bool> let_go{true};
std::atomic<int> stuck_now{0};
/// Until the test lets go, or for a minute.
void stuck() {
  ++stuck_now;
  for (int i = 0; !let_go && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
  --stuck_now;
}
struct released {
  released() { let_go = false; }
  released(const released&) = delete;
  released& operator=(const released&) = delete;
  ~released() {
    let_go = true;
    for (int i = 0; stuck_now > 0 && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
  }
};

TEST_CASE("ending: a plain function that does not return is named, and its pool left behind") {
  in_every_way([](over how, const options& o) {
    const released at_the_end;
    cluster workers(2, how, patient_for(300ms, o));
    const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      // With more time, until it has begun: on a slow machine no call may arrive in the first.
      for (auto limit = 50ms; stuck_now == 0 && limit < 30s; limit *= 2) {
        const auto e =
            co_await failure_of(me.peer(1).call<&stuck>(within(limit), weft::as_expected));
        CHECK(e == errc::timed_out);
      }
    });
    check_all_say(ends, "'worker1'");
    INFO(ends[1].message());
    CHECK(says(ends[1], "stuck' called by worker 'worker0' still runs on worker1's pool after "));
    CHECK(says(ends[1], "left behind"));
    CHECK(stuck_now > 0);
  });
}

TEST_CASE("ending: a function that does not return is named after a failure, too") {
  const released at_the_end;
  cluster workers(2, over::tcp, patient_for(300ms, with_io_threads(1)));
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    if (me.rank() != 0) co_return;
    me.peer(0).post<&stuck>();
    for (bounded_wait until("it is stuck"); until.not_yet(stuck_now > 0);) {
      co_await asio::post(asio::use_awaitable);
    }
    throw std::runtime_error("the data are gone");
  });
  check_all_say(ends, "the data are gone");
  CHECK(says(ends[0], "stuck' called by worker 'worker0' still runs on worker0's pool after "));
}

TEST_CASE("ending: a worker that does not answer is named") {
  const released at_the_end;
  cluster workers(3, over::tcp, patient_for(500ms, with_io_threads(1)));
  workers.start([](worker& me) -> asio::awaitable<void> {
    co_await me.peer(0).call<&add>(1, 1);
    // Its own thread is busy long after its main has returned.
    if (me.rank() == 2) asio::post(weft::detail::context_of(me), [] { stuck(); });
    co_return;
  });
  std::vector<weft::error> ends;
  std::thread later([] {
    for (int i = 0; stuck_now == 0 && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(2s);
    let_go = true;
  });
  ends = workers.join();
  later.join();
  for (const std::size_t r : {0u, 1u}) {
    INFO(ends[r].message());
    CHECK(ends[r] == errc::peer_died);
    CHECK(says(ends[r], "'worker2'"));
    CHECK(says(ends[r], "did not answer"));
  }
  CHECK(ends[2]);
}

// ── who was never there ──

TEST_CASE("ending: a worker that never greeted rank 0 is named, and nobody waits for ever") {
  for (const unsigned io_threads : io_ways(2)) {
    options o = with_io_threads(io_threads);
    o.rendezvous_deadline = 1500ms;
    cluster workers(2, over::tcp, o, 2);
    const auto ends = workers.run([](worker&) -> asio::awaitable<void> { co_return; });
    check_all_say(ends, "'worker2'");
    check_all_say(ends, "worker3");
    check_all_say(ends, "not greeted");
  }
}

TEST_CASE("ending: a worker whose greeting rank 0 refused for another one ends by itself") {
  raw_listener there;
  options o = with_io_threads(1);
  o.rendezvous_deadline = 1500ms;
  cluster workers(2, over::tcp, o);
  workers.members().members.change(0).addresses = {{"tcp", there.endpoint()}};
  workers.start([](worker&) -> asio::awaitable<void> { co_return; });
  raw_peer zero = there.accept();
  CHECK(zero.read());
  CHECK(zero.send(weft::engine::refusal_frame_of(weft::error(errc::closed, "another one stays"))));
  const auto ends = workers.join();
  CHECK(says(ends[0], "'worker1'"));
  CHECK(says(ends[0], "not greeted"));
  CHECK(says(ends[1], "'worker0'"));
}

TEST_CASE("ending: whoever is busy while the requests are counted accuses nobody") {
  cluster workers(3, over::tcp, patient_for(300ms, with_io_threads(1)));
  const auto ends = workers.run([](worker& me) -> asio::awaitable<void> {
    for (std::uint32_t r = 0; r < 3; ++r) CHECK(co_await me.peer(r).call<&add>(1, 2) == 3);
    if (me.rank() == 0) {
      asio::post(weft::detail::context_of(me), [] { std::this_thread::sleep_for(1s); });
      co_return;
    }
    // Their mains return while it is busy, so that it has not begun to count.
    asio::steady_timer t(weft::detail::context_of(me), 200ms);
    co_await t.async_wait(asio::use_awaitable);
  });
  for (const auto& e : ends) {
    INFO(e.message());
    CHECK_FALSE(e);
  }
}

// ── handlers that throw ──

asio::awaitable<void> fail_after_a_call(worker& me) {
  co_await me.peer(0).call<&add>(1, 1);
  throw std::runtime_error("the handler is torn");
}
asio::awaitable<void> fail_at_once(worker&) {
  throw std::runtime_error("the handler is torn");
  co_return;
}
constexpr auto rethrow = [](std::exception_ptr e) {
  if (e) std::rethrow_exception(e);
};
asio::awaitable<void> spawn_a_failure(worker& me) {
  asio::co_spawn(weft::detail::context_of(me), fail_at_once(me), rethrow);
  co_return;
}
/// An operation that ends with its io_context, and whose cancellation throws that.
template <class Thrown>
asio::awaitable<void> wait_uncancellably(Thrown what) {
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [what](auto handler) {
        asio::get_associated_cancellation_slot(handler).assign(
            [what](asio::cancellation_type) { throw what; });
        const auto at =
            std::make_shared<asio::steady_timer>(asio::get_associated_executor(handler), 1h);
        at->async_wait(
            [at, mine = std::move(handler)](asio::error_code) mutable { std::move(mine)(); });
      },
      asio::use_awaitable);
}
std::atomic<bool> waits_badly{false};
asio::awaitable<void> cancelled_badly() {
  waits_badly = true;
  return wait_uncancellably(std::runtime_error("the handler is torn"));
}

TEST_CASE("ending: a cancellation handler that throws does the same, also for want of memory") {
  for (const bool memory : {false, true}) {
    CAPTURE(memory);
    in_every_way([memory](over how, const options& o) {
      waits_badly = false;
      cluster workers(3, how, o);
      const auto ends = workers.run([memory](worker& me) -> asio::awaitable<void> {
        // It may be over before it begins, where others have the cores.
        for (bounded_wait until("one begins");
             me.rank() == 1 && !memory && until.not_yet(waits_badly);) {
          const auto ended =
              co_await me.peer(2).call<&cancelled_badly>(within(30ms), weft::as_expected);
          // Its callee has the same deadline, and may end the run first.
          CAPTURE(ended.error().message());
          CHECK((ended.error() == errc::timed_out || ended.error() == errc::worker_failed ||
                 ended.error() == errc::peer_died));
        }
        weft::future<void> f;
        if (me.rank() == 2 && memory) {
          f = me.spawn(wait_uncancellably(std::bad_alloc()));
          f.request_stop();
        }
        co_await me.peer(0).call<&wait_for_ever>(within(1h));
      });
      check_all_say(ends, memory ? "std::bad_alloc" : "the handler is torn");
      check_all_say(ends, "'worker2'");
    });
  }
}

TEST_CASE("ending: a handler that throws ends the run with its words, for all") {
  for (const int variant : {0, 1, 2}) {
    CAPTURE(variant);
    in_every_way([variant](over how, const options& o) {
      cluster workers(3, how, o);
      const auto ends = workers.run([variant](worker& me) -> asio::awaitable<void> {
        if (me.rank() == 1) {
          if (variant == 0) asio::co_spawn(weft::detail::context_of(me), fail_at_once(me), rethrow);
          if (variant == 1)
            asio::co_spawn(weft::detail::context_of(me), fail_after_a_call(me), rethrow);
          if (variant == 2) co_await me.peer(2).call<&spawn_a_failure>();
        }
        co_await me.peer(0).call<&wait_for_ever>(within(1h));
      });
      check_all_say(ends, "the handler is torn");
      check_all_say(ends, variant == 2 ? "'worker2'" : "'worker1'");
    });
  }
}

// ── who waits ──

asio::awaitable<void> wait_and_count() {
  ++done;
  co_await wait_for_ever();
}
/// How it fails, handed on from one coroutine to the next.
asio::awaitable<weft::error> handed_on(worker& me, int times) {
  if (times > 0) co_return co_await me.spawn(handed_on(me, times - 1));
  co_return co_await failure_of(me.peer(2).call<&wait_and_count>(within(1h), weft::as_expected));
}

asio::awaitable<void> never_here() {
  const auto nobody_sets_it = make_intrusive<event>();
  co_await event::wait(nobody_sets_it);
}
asio::awaitable<void> call_on(worker& me, int where) {
  co_await me.peer(where).call<&never_here>();
}

/// Worker 3 loses worker 1, by which the call of worker 2's main fails.
std::vector<weft::error> lose_through_another(over how, const options& o, bool met) {
  cluster all(4, how, o);
  return all.run([met](worker& me) -> asio::awaitable<void> {
    if (me.rank() == 3) {
      if (met) CHECK(co_await me.peer(1).call<&add>(1, 1) == 2);
      CHECK(co_await eventually([&me] { return calls_waiting(me, 1) == 1; }));
      me.link_to(1).mark_down(weft::error(errc::peer_died, "the test cut the link"));
    }
    if (me.rank() == 2) co_await me.peer(3).call<&call_on>(1);
    co_await never_here();
  });
}

TEST_CASE("ending: a main that fails because two others lost each other does not blame itself") {
  in_every_way([](over how, const options& o) {
    const auto ends = lose_through_another(how, o, true);
    for (std::uint32_t r = 0; r < 4; ++r) {
      INFO("rank ", r, ": ", ends[r].message());
      CHECK(ends[r] == (r == 3 ? errc::worker_failed : errc::peer_died));
      CHECK(ends[r].detail().peer == "worker3");
      CHECK(says(ends[r], "the link between worker 'worker1' (rank 1) and worker 'worker3'"));
    }
  });
  // The two never met: nobody has lost anything but calls, whose callers were told.
  const auto ends = lose_through_another(over::tcp, with_io_threads(1), false);
  for (const std::uint32_t r : {0u, 2u, 3u}) {
    INFO("rank ", r, ": ", ends[r].message());
    const bool broke = says(ends[r], "the link between worker 'worker1'");
    CHECK(ends[r] == (broke && r == 3 ? errc::worker_failed : errc::peer_died));
    CHECK(ends[r].detail().peer == (broke ? "worker3" : "worker1"));
  }
}

TEST_CASE("ending: a main that waits through others hears why, before it is cancelled") {
  in_every_way([](over how, const options& o) {
    weft::error heard;
    done = 0;
    cluster workers(3, how, o);
    const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 1) {
        co_await me.peer(0).call<&add>(1, 1);
        for (bounded_wait until("worker 2 is called"); until.not_yet(done == 1);) {
          co_await asio::post(asio::use_awaitable);
        }
        throw std::runtime_error("it is torn");
      }
      if (me.rank() == 0) heard = co_await handed_on(me, 20);
    });
    check_all_say(ends, "it is torn");
    CHECK(heard == errc::peer_died);
    CHECK(says(heard, "worker1"));
  });
}

// ── what is left ──

struct counted {
  explicit counted(std::atomic<int>& c) : count(c) { ++count; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --count; }
  std::atomic<int>& count;
};
asio::awaitable<void> try_for_ever(worker& me, std::atomic<int>& alive) {
  const counted here(alive);
  // bounded: by the run that it outlives
  for (;;) {
    static_cast<void>(co_await me.peer(0).call<&add>(1, 1, weft::as_expected));
    co_await asio::post(asio::use_awaitable);
  }
}

TEST_CASE("ending: a coroutine that calls to the last leaves nothing behind") {
  for (const over how : all_kinds) {
    CAPTURE(name_of(how));
    std::atomic<int> alive{0};
    {
      cluster workers(2, how, with_io_threads(1));
      const auto ends = workers.run([&](worker& me) -> asio::awaitable<void> {
        for (int i = 0; i < 20; ++i) {
          asio::co_spawn(weft::detail::context_of(me), try_for_ever(me, alive),
                         [](std::exception_ptr) {});
        }
        co_await me.peer(0).call<&add>(1, 1);
        if (me.rank() == 1) throw std::runtime_error("over");
      });
      for (const auto& e : ends) CHECK(e);
    }
    CHECK(alive == 0);
  }
}

}  // namespace endings
