// SPDX-License-Identifier: BSL-1.0
// Workers that a program owns: loops of their own and of the user's, their ends, and whoever goes
// first.
#include <weft/rpc/detail/process_workers.hpp>
#include <weft/run.hpp>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_future.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <core/error_of.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <join/joining.hpp>
#include <optional>
#include <string>
#include <system_error>

namespace joined_workers {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::join;
using weft::join_blocking;
using weft::owned_worker;
using weft::tcp;
using weft::unix_socket;
using weft::wait;
using weft::within;
using weft::worker;

int add(int a, int b) { return a + b; }
std::thread::id where() { return std::this_thread::get_id(); }
std::atomic<int> stuck_now{0};
std::atomic<bool> let_go{false};
void stuck() {
  ++stuck_now;
  for (int i = 0; !let_go && i < 40'000; ++i) std::this_thread::sleep_for(1ms);
  --stuck_now;
}
std::atomic<int> resting{0};
std::atomic<int> rested{0};  // begun
/// Cancelled with who serves it.
asio::awaitable<void> rest() {
  struct counted {
    counted() { ++resting, ++rested; }
    ~counted() { --resting; }
  } const here;
  asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
  co_await timer.async_wait(asio::use_awaitable);
}
asio::awaitable<std::uint64_t> thread_of_loop(worker& me) {
  CHECK(me.on_thread());
  co_return std::hash<std::thread::id>()(std::this_thread::get_id());
}
asio::awaitable<void> nothing() { co_return; }
std::uint64_t hash_of(std::thread::id id) { return std::hash<std::thread::id>()(id); }

std::size_t workers_here() {
  std::size_t count = 0;
  static_cast<void>(weft::detail::process_workers::only(count));
  return count;
}

// ── loops of their own ──

TEST_CASE("join: a worker alone runs, serves itself, and ends well when it leaves") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  CHECK(me->world_size() == 1);
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  CHECK(wait(me->peer(0).call<&add>(1, 2)) == 3);
  me.leave();
  me.leave();
  CHECK_FALSE(end.get());
  CHECK_FALSE(me.run());  // of a run that is over: at once
  CHECK(me.poll());
}

TEST_CASE("join: several workers of one process call each other, with 0, 1 and 2 I/O threads") {
  for (const unsigned io_threads : {0u, 1u, 2u}) {
    CAPTURE(io_threads);
    joined_pair all(3, io_threads);
    for (std::uint32_t from = 0; from < 3; ++from) {
      for (std::uint32_t to = 0; to < 3; ++to) {
        CHECK(wait(all[from], all[from].peer(to).call<&add>(int(from), int(to))) == int(from + to));
      }
    }
    for (const weft::error& e : all.leave()) CHECK_FALSE(e);
  }
  CHECK(workers_here() == 0);
}

TEST_CASE("join: a program with a loop of another kind polls") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  std::optional<int> sum;
  weft::future<void> work =
      me->spawn([](worker& w, std::optional<int>& out) -> asio::awaitable<void> {
        out = co_await w.peer(0).call<&add>(20, 1);
      }(*me, sum));
  for (bounded_wait until("the call has ended"); until.not_yet(sum.has_value());) {
    CHECK_FALSE(me.run_for(1ms));
  }
  CHECK(sum == 21);
  me.leave();
  for (bounded_wait until("the run has ended"); until.not_yet(me.poll());) {
  }
  CHECK_FALSE(me.run());
}

TEST_CASE("join: a second thread that runs the loop gets an error, the first goes on") {
  joined_pair all(1);
  CHECK(wait(all[0], all[0].peer(0).call<&add>(1, 1)) == 2);  // the first one is in
  const auto e = error_of([&] { static_cast<void>(all.owner(0).run()); });
  CHECK(e == errc::invalid_argument);
  CHECK(e.message().find("a second thread runs the loop of worker 'worker0'") != std::string::npos);
  CHECK(wait(all[0], all[0].peer(0).call<&add>(1, 2)) == 3);
  CHECK_FALSE(all.leave()[0]);
}

TEST_CASE("join: a second thread that comes while the first waits for the threads gets an error") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  std::promise<void> open;
  std::promise<void> inside;
  asio::post(me->compute_pool(), [&] {
    inside.set_value();
    open.get_future().wait();
  });
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  inside.get_future().wait();
  me.leave();
  for (bounded_wait until("the run is over");
       until.not_yet(me->loop() == worker::loop_state::over);) {
  }
  const auto refused = error_of([&] { static_cast<void>(me.run()); });
  CHECK(refused == errc::invalid_argument);
  CHECK(error_of([&] { static_cast<void>(me.poll()); }) == errc::invalid_argument);
  open.set_value();
  CHECK_FALSE(end.get());
  CHECK_FALSE(me.run());  // of a run that is over
}

TEST_CASE("join: a worker destroyed before its run ended is a loss for the other, named") {
  joined_pair all(2);
  CHECK(wait(all[0], all[0].peer(1).call<&add>(1, 1)) == 2);
  all.owner(1) = owned_worker();  // while its thread runs the loop
  const auto& ends = all.wait();
  CHECK(ends[1] == errc::worker_failed);
  CHECK(ends[1].message().find("its owner has destroyed it") != std::string::npos);
  CHECK(ends[0] == errc::peer_died);
  CHECK(ends[0].message().find("worker1") != std::string::npos);
}

TEST_CASE("join: a worker that fails says why to all, as a main that throws") {
  joined_pair all(2);
  CHECK(wait(all[0], all[0].peer(1).call<&add>(1, 1)) == 2);
  all.owner(1).fail("the disk is full");
  all.owner(1).fail("not this");
  all.owner(1).leave();  // it has failed already
  const auto& ends = all.wait();
  CHECK(ends[1] == errc::worker_failed);
  CHECK(ends[0] == errc::peer_died);
  for (const weft::error& e : ends) {
    INFO(e.message());
    CHECK(e.message().find("the disk is full") != std::string::npos);
  }
}

TEST_CASE("join: a worker that may go fails alone, and the others end well") {
  joined_pair all(3, 1, weft::loss_policy::go_on());
  for (std::uint32_t r = 0; r < 3; ++r) {
    CHECK(wait(all[r], all[r].peer((r + 1) % 3).call<&add>(1, 1)) == 2);
  }
  all.owner(2).fail("enough");
  for (bounded_wait until("the others know"); until.not_yet(false);) {
    if (error_of([&] { wait(all[0], all[0].peer(2).call<&add>(1, 1)); }) == errc::peer_died) break;
  }
  CHECK(wait(all[0], all[0].peer(1).call<&add>(2, 2)) == 4);
  const auto& ends = all.leave();
  CHECK_FALSE(ends[0]);
  CHECK_FALSE(ends[1]);
  CHECK(ends[2] == errc::worker_failed);
}

TEST_CASE("join: a worker that nobody runs is destroyed at once, and the other hears of it") {
  const std::string run = fresh_run();
  auto other =
      std::async(std::launch::async, [&] { return join_blocking<tcp>(seat_of(run, 1, 2)); });
  owned_worker me = join_blocking<tcp>(seat_of(run, 0, 2));
  owned_worker dead = other.get();
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  {
    // It serves for a while, and has something that waits on its loop.
    weft::future<void> call;
    auto first = std::async(std::launch::async, [&] {
      call = me->peer(1).start<&rest>(within(1min));
      return wait(*me, me->peer(1).call<&add>(4, 5));
    });
    for (bounded_wait until("it has served"); until.not_yet(resting == 1);) dead.run_for(1ms);
    const auto answered = [&] { return first.wait_for(0s) == std::future_status::ready; };
    for (bounded_wait until("it has answered"); until.not_yet(answered());) dead.run_for(1ms);
    CHECK(first.get() == 9);
    dead = owned_worker();
    CHECK(resting == 0);
    const auto e = error_of([&] { wait(*me, std::move(call).get()); });
    CHECK((e == errc::peer_died || e == errc::shutting_down));
  }
  CHECK(end.get() == errc::peer_died);
}

TEST_CASE("join: a function that does not return is left behind when its worker is destroyed") {
  let_go = false;
  weft::options o = seat_of(fresh_run(), 0, 1);
  o.shutdown_deadline = 300ms;
  owned_worker me = join_blocking<tcp>(std::move(o));
  me->peer(0).post<&stuck>();
  for (bounded_wait until("it is stuck"); until.not_yet(stuck_now == 1);) me.poll();
  me.leave();
  const weft::error e = me.run();
  INFO(e.message());
  CHECK(e == errc::worker_failed);
  CHECK(e.message().find("stuck") != std::string::npos);
  me = owned_worker();
  CHECK(stuck_now == 1);
  let_go = true;
  for (bounded_wait until("it is let go"); until.not_yet(stuck_now == 0);)
    std::this_thread::sleep_for(1ms);
}

TEST_CASE("join: a worker destroyed from within its own loop, which stops, is gone") {
  const std::string run = fresh_run();
  auto other =
      std::async(std::launch::async, [&] { return join_blocking<tcp>(seat_of(run, 1, 2)); });
  owned_worker me = join_blocking<tcp>(seat_of(run, 0, 2));
  owned_worker dies = other.get();
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  // They have met: one that never greeted is missed at the rendezvous deadline only.
  auto first =
      std::async(std::launch::async, [&] { return wait(*me, me->peer(1).call<&add>(1, 2)); });
  const auto answered = [&] { return first.wait_for(0s) == std::future_status::ready; };
  for (bounded_wait until("it has answered"); until.not_yet(answered());) dies.run_for(1ms);
  CHECK(first.get() == 3);
  CHECK(dies->spawn([](owned_worker& w) -> asio::awaitable<void> {
              w = owned_worker();
              co_return;
            }(dies))
            .valid());
  for (bounded_wait until("it is destroyed"); until.not_yet(!dies);) dies.run_for(1ms);
  CHECK(end.get() == errc::peer_died);
  CHECK(workers_here() == 1);
}

asio::awaitable<int> code_of_waiting_for_the_end(owned_worker& me) {
  try {
    co_await me.ended();
  } catch (const weft::rpc_error& e) {
    co_return e.error().code().value();
  }
  co_return 0;
}

TEST_CASE("join: the end is waited for elsewhere, not on the loop that ends with it") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  CHECK(wait(*me, code_of_waiting_for_the_end(me)) == int(errc::invalid_argument));
  asio::io_context io;
  auto elsewhere = asio::co_spawn(io, me.ended(), asio::use_future);
  me.leave();
  CHECK_FALSE(end.get());
  me = owned_worker();  // who waits for the end does not need it
  io.run();
  CHECK_FALSE(elsewhere.get());
  CHECK(workers_here() == 0);
}

asio::awaitable<bool> polls(owned_worker& me) {
  co_return error_of([&] { me.poll(); }) == errc::invalid_argument;
}

TEST_CASE("join: a loop is not run from within itself") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  std::future<weft::error> end = std::async(std::launch::async, [&] { return me.run(); });
  CHECK(wait(*me, polls(me)));
  me.leave();
  CHECK_FALSE(end.get());
}

// ── meeting ──

TEST_CASE("join: whoever does not come is named at the deadline, for both forms") {
  weft::options o = seat_of(fresh_run(), 0, 2);
  o.rendezvous_deadline = 200ms;
  const auto blocking = error_of([&] { static_cast<void>(join_blocking<tcp>(o)); });
  CHECK(blocking == errc::rendezvous_failed);
  CHECK(blocking.message().find("missing: 1") != std::string::npos);
  asio::io_context io;
  auto later = asio::co_spawn(io, join<tcp>(o), asio::use_future);
  io.run();
  const auto e = error_of([&] { static_cast<void>(later.get()); });
  CHECK(e == errc::rendezvous_failed);
  CHECK(workers_here() == 0);
}

/// Whether that rank has a seat in the meeting of that run.
bool seated(const weft::options& o) {
  const std::string key = weft::engine::run_key(*o.place, o.run_id);
  std::error_code ec;
  for (const auto& e : std::filesystem::directory_iterator(weft::engine::meeting_folder(), ec)) {
    if (!e.path().filename().string().starts_with(key)) continue;
    std::ifstream in(e.path());
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(std::to_string(o.place->rank) + " ")) return true;
    }
  }
  return false;
}

TEST_CASE("join: a cancelled join throws cancelled, and the others hear within a second or two") {
  const std::string run = fresh_run();
  asio::io_context io;
  asio::cancellation_signal stop;
  std::exception_ptr failure;
  const weft::options mine = seat_of(run, 1, 3);
  weft::options others = seat_of(run, 0, 3);
  others.rendezvous_deadline = std::chrono::hours(1);  // rank 2 never comes
  asio::co_spawn(io, join<tcp>(mine),
                 asio::bind_cancellation_slot(
                     stop.slot(), [&](std::exception_ptr e, owned_worker) { failure = e; }));
  weft::error other;
  std::jthread waits(
      [&] { other = error_of([&] { static_cast<void>(join_blocking<tcp>(others)); }); });
  for (bounded_wait until("both are there"); until.not_yet(seated(mine) && seated(others));) {
    io.run_for(1ms);
  }
  CHECK_FALSE(failure);
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  REQUIRE(failure);
  CHECK(error_of([&] { std::rethrow_exception(failure); }) == errc::cancelled);
  waits.join();  // though its deadline is far
  CHECK(other == errc::rendezvous_failed);
  INFO(other.message());
  CHECK(other.message().find("rank 1") != std::string::npos);
}

TEST_CASE("join: slips are refused with a sentence") {
  weft::options o = seat_of(fresh_run(), 2, 2);
  CHECK(error_of([&] { static_cast<void>(join_blocking<tcp>(o)); }) == errc::invalid_argument);
  weft::options many;
  many.workers = 3;
  const auto e = error_of([&] { static_cast<void>(join_blocking<tcp>(many)); });
  CHECK(e == errc::invalid_argument);
  CHECK(e.message().find("starts no processes") != std::string::npos);
  weft::owned_worker none;
  CHECK_FALSE(none);
  CHECK(error_of([&] { none.leave(); }) == errc::invalid_argument);
}

// ── loops of the user's ──

/// Two workers of one io_context, which one thread runs.
struct on_one_loop {
  explicit on_one_loop(asio::io_context& io, std::uint32_t size = 2) : workers(size) {
    const std::string run = fresh_run();
    auto meet = [](asio::io_context& loop, weft::options o, owned_worker& out,
                   std::size_t& there) -> asio::awaitable<void> {
      out = co_await join<unix_socket, tcp>(loop, std::move(o));
      ++there;
    };
    std::size_t there = 0;
    for (std::uint32_t r = 0; r < size; ++r) {
      asio::co_spawn(io, meet(io, seat_of(run, r, size), workers[r], there), asio::detached);
    }
    for (bounded_wait until("they have met"); until.not_yet(there == size);) io.run_for(1ms);
  }
  std::vector<owned_worker> workers;
};

TEST_CASE("join: workers live on an io_context of the user's, beside other things, on its thread") {
  asio::io_context io;
  on_one_loop on(io);
  std::vector<weft::error> ends;
  auto program = [](std::vector<owned_worker>& all,
                    std::vector<weft::error>& out) -> asio::awaitable<void> {
    const std::uint64_t mine = hash_of(std::this_thread::get_id());
    for (int i = 0; i < 20; ++i) {
      CHECK(co_await all[0]->peer(1).call<&thread_of_loop>() == mine);
      CHECK(co_await all[1]->peer(0).call<&add>(i, 1) == i + 1);
      CHECK(co_await all[1]->peer(1).call<&add>(i, 2) == i + 2);
    }
    for (owned_worker& w : all) w.leave();
    for (owned_worker& w : all) out.push_back(co_await w.ended());
  };
  asio::co_spawn(io, program(on.workers, ends), [](std::exception_ptr e) { CHECK_FALSE(e); });
  int ticks = 0;
  asio::steady_timer other(io, 1ms);
  other.async_wait([&](asio::error_code) { ++ticks; });
  io.run();  // returns, as nothing is left
  CHECK(ticks == 1);
  REQUIRE(ends.size() == 2);
  CHECK_FALSE(ends[0]);
  CHECK_FALSE(ends[1]);
  CHECK(error_of([&] { static_cast<void>(on.workers[0].run()); }) == errc::invalid_argument);
  on.workers.clear();
  io.restart();
  io.run();
  CHECK(workers_here() == 0);  // freed, though the io_context lives
}

TEST_CASE("join: what cannot begin on an io_context of the user's ends, with its reason") {
  asio::io_context io;
  weft::options o = seat_of(fresh_run(), 0, 1);
  o.thread_starts = [mine = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == mine) throw std::runtime_error("no core is left");
  };
  std::optional<weft::error> end;
  owned_worker me = weft::join_blocking<weft::unix_socket, weft::tcp>(io, std::move(o));
  auto wait = [](owned_worker& of, std::optional<weft::error>& out) -> asio::awaitable<void> {
    out = co_await of.ended();
  };
  asio::co_spawn(io, wait(me, end), [](std::exception_ptr e) { CHECK_FALSE(e); });
  for (bounded_wait until("its run has ended"); until.not_yet(end.has_value());) io.run_for(1ms);
  REQUIRE(end);
  CHECK(*end == errc::worker_failed);
  CHECK(end->message().find("no core is left") != std::string::npos);
}

TEST_CASE("join: what cannot begin on an io_context of the user's is told the others") {
  const std::string run = fresh_run();
  weft::error of_other;
  std::thread other([&] {
    owned_worker me = weft::join_blocking<weft::unix_socket, weft::tcp>(seat_of(run, 0, 2));
    of_other = me.run();
  });
  asio::io_context io;
  weft::options o = seat_of(run, 1, 2);
  o.thread_starts = [mine = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == mine) throw std::runtime_error("no core is left");
  };
  {
    owned_worker me = weft::join_blocking<weft::unix_socket, weft::tcp>(io, std::move(o));
    std::optional<weft::error> end;
    auto wait = [](owned_worker& of, std::optional<weft::error>& out) -> asio::awaitable<void> {
      out = co_await of.ended();
    };
    asio::co_spawn(io, wait(me, end), [](std::exception_ptr e) { CHECK_FALSE(e); });
    for (bounded_wait until("its run has ended"); until.not_yet(end.has_value());) io.run_for(1ms);
  }
  other.join();
  CHECK(of_other == errc::peer_died);
  CHECK(of_other.message().find("no core is left") != std::string::npos);
}

TEST_CASE("join: a second thread that runs the io_context gets an error, the first goes on") {
  asio::io_context io;
  on_one_loop on(io);
  // This thread was the first: it has met the others there.
  std::atomic<bool> done{false};
  std::atomic<int> refused{0};
  std::thread second([&] {
    for (bounded_wait until("a handler comes its way"); until.not_yet(done);) {
      on.workers[0]->peer(1).post<&nothing>();
      try {
        io.run_for(1ms);
      } catch (const weft::rpc_error& e) {
        if (e.error() == errc::invalid_argument &&
            std::string(e.what()).find("a second thread runs the loop") != std::string::npos) {
          ++refused;
        }
        done = true;
      }
    }
  });
  for (bounded_wait until("the second is refused"); until.not_yet(done);) io.run_for(1ms);
  second.join();
  std::optional<int> sum;
  auto call = [](worker& me, std::optional<int>& out) -> asio::awaitable<void> {
    out = co_await me.peer(1).call<&add>(3, 4);
  };
  asio::co_spawn(io, call(*on.workers[0], sum), asio::detached);
  for (bounded_wait until("the first goes on"); until.not_yet(sum.has_value());) io.run_for(1ms);
  CHECK(sum == 7);
  CHECK(refused == 1);
}

TEST_CASE("join: a worker destroyed on a loop of the user's fails its run, and is freed") {
  asio::io_context io;
  on_one_loop on(io);
  std::optional<weft::error> call;
  std::optional<weft::error> end;
  auto program = [](std::vector<owned_worker>& all, std::optional<weft::error>& c,
                    std::optional<weft::error>& e) -> asio::awaitable<void> {
    auto waits = all[0]->peer(1).start<&rest>(within(1min));
    co_await all[0]->peer(1).call<&add>(1, 1);
    all[1] = owned_worker();
    try {
      co_await std::move(waits);
    } catch (const weft::rpc_error& x) {
      c = x.error();
    }
    e = co_await all[0].ended();
  };
  asio::co_spawn(io, program(on.workers, call, end), [](std::exception_ptr e) { CHECK_FALSE(e); });
  io.run();
  REQUIRE(call);
  CHECK(*call);
  REQUIRE(end);
  CHECK(*end == errc::peer_died);
  CHECK(resting == 0);
  on.workers.clear();
  io.restart();
  io.run();
  CHECK(workers_here() == 0);
}

TEST_CASE("join: an io_context that goes first takes its workers with it") {
  std::optional<asio::io_context> io(std::in_place);
  on_one_loop on(*io);
  weft::future<void> waits = on.workers[0]->peer(1).start<&rest>(within(1min));
  for (bounded_wait until("it is served"); until.not_yet(resting == 1);) io->run_for(1ms);
  io.reset();
  CHECK(resting == 0);
  CHECK(workers_here() == 0);
  CHECK(error_of([&] { static_cast<void>(*on.workers[0]); }) == errc::invalid_argument);
  on.workers[0].leave();
}

/// Holds what is of the io_context while it waits for a reply.
asio::awaitable<void> waits_with_a_socket(worker& me, std::uint32_t at) {
  asio::ip::tcp::socket socket(co_await asio::this_coro::executor, asio::ip::tcp::v4());
  asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
  co_await timer.async_wait(asio::use_awaitable);
  co_await me.peer(at).call<&rest>(within(1min));
}

TEST_CASE("join: an io_context that goes destroys what waits for replies while all of it lives") {
  for (int round = 0; round < 5; ++round) {
    std::optional<asio::io_context> io(std::in_place);
    on_one_loop on(*io);
    asio::co_spawn(*io, waits_with_a_socket(*on.workers[0], 1), asio::detached);
    asio::co_spawn(*io, waits_with_a_socket(*on.workers[1], 1), asio::detached);
    for (bounded_wait until("both are served"); until.not_yet(resting == 2);) io->run_for(1ms);
    // Requests are on their way while it goes.
    for (int i = 0; i < 100; ++i) on.workers[0]->peer(1).post<&nothing>();
    io.reset();
    CHECK(resting == 0);
    CHECK(workers_here() == 0);
  }
}

std::atomic<int> nested{0};
/// Runs the io_context from within, as a modal dialogue does.
asio::awaitable<void> runs_the_loop(worker&, std::uint64_t at) {
  auto& io = *reinterpret_cast<asio::io_context*>(at);
  for (int i = 0; i < 20; ++i) io.run_for(1ms);
  ++nested;
  co_return;
}

TEST_CASE("join: an io_context that is run from within itself loses nothing") {
  asio::io_context io;
  on_one_loop on(io);
  int sum = 0;
  auto program = [](std::vector<owned_worker>& all, std::uint64_t at,
                    int& out) -> asio::awaitable<void> {
    for (int i = 0; i < 3; ++i) {
      all[0]->peer(1).post<&runs_the_loop>(at);
      for (int n = 0; n < 20; ++n) all[0]->peer(1).post<&nothing>();
    }
    for (int i = 0; i < 10; ++i) out += co_await all[0]->peer(1).call<&add>(i, 1);
    for (owned_worker& w : all) w.leave();
    for (owned_worker& w : all) CHECK_FALSE(co_await w.ended());
  };
  asio::co_spawn(io, program(on.workers, reinterpret_cast<std::uint64_t>(&io), sum),
                 [](std::exception_ptr e) { CHECK_FALSE(e); });
  io.run();
  CHECK(sum == 55);
  CHECK(nested == 3);
}

TEST_CASE("join: what was let go, or called too late, does not keep the io_context busy") {
  asio::io_context io;
  on_one_loop on(io);
  auto program = [](std::vector<owned_worker>& all) -> asio::awaitable<void> {
    all[0]->peer(1).start<&rest>(within(1min)).detach();
    CHECK(co_await all[0]->peer(1).call<&add>(1, 1) == 2);
    for (owned_worker& w : all) w.leave();
    for (owned_worker& w : all) CHECK_FALSE(co_await w.ended());
    for (owned_worker& w : all) {
      for (const int to : {0, 1}) {
        const auto late = co_await w->peer(to).call<&add>(1, 1, weft::as_expected);
        CHECK(late.error() == weft::errc::shutting_down);
        CHECK(late.error().ran() == weft::call_progress::not_sent);
      }
    }
  };
  asio::co_spawn(io, program(on.workers), [](std::exception_ptr e) { CHECK_FALSE(e); });
  io.run();
  CHECK(resting == 0);
}

TEST_CASE("join: workers come and go on one io_context, and nothing of them stays") {
  asio::io_context io;
  for (int round = 0; round < 5; ++round) {
    on_one_loop on(io);
    auto program = [](std::vector<owned_worker>& all) -> asio::awaitable<void> {
      CHECK(co_await all[0]->peer(1).call<&add>(1, 2) == 3);
      for (owned_worker& w : all) w.leave();
      for (owned_worker& w : all) CHECK_FALSE(co_await w.ended());
      all.clear();
    };
    asio::co_spawn(io, program(on.workers), [](std::exception_ptr e) { CHECK_FALSE(e); });
    io.restart();
    io.run();
    io.restart();
    CHECK(workers_here() == 0);
  }
}

// ── waiting ──

int slow_add(int a, int b) {
  std::this_thread::sleep_for(20ms);
  return a + b;
}
void fails() { throw std::runtime_error("no"); }
asio::awaitable<weft::error> waits_on_its_loop(worker& me) {
  co_return error_of([&] { wait(me, me.peer(0).call<&add>(1, 1)); });
}
int waits_on_the_pool(worker& me, int x) { return wait(me, me.peer(0).call<&add>(x, 1)); }
std::string refused_on_its_loop(worker&);
asio::awaitable<int> code_of_waiting(worker& me) {
  const weft::error e = co_await waits_on_its_loop(me);
  co_return e.code().value();
}

TEST_CASE("wait: gives results and throws what the work throws, on any thread of the program's") {
  joined_pair all(2);
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { sum += wait(all[0], all[0].peer(1).call<&slow_add>(i, 1)); });
  }
  for (std::thread& t : threads) t.join();
  CHECK(sum == 0 + 1 + 2 + 3 + 4);
  CHECK(error_of([&] { wait(all[0], all[0].peer(1).call<&fails>()); }) == errc::remote_exception);
  CHECK(wait(all[0], all[0].peer(1).start<&slow_add>(2, 2)) == 4);  // a future
  // On a compute thread, too.
  CHECK(wait(all[0], all[0].peer(1).call<&waits_on_the_pool>(5)) == 6);
}

TEST_CASE("wait: is refused, instead of a deadlock, on a loop's thread") {
  joined_pair all(2);
  CHECK(wait(all[0], all[0].peer(1).call<&code_of_waiting>()) == int(errc::invalid_argument));
  // Also between turns of the loop, and for another worker.
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  me.poll();
  CHECK(error_of([&] { wait(*me, me->peer(0).call<&add>(1, 1)); }) == errc::invalid_argument);
  CHECK(error_of([&] { wait(all[0], all[0].peer(0).call<&add>(1, 1)); }) == errc::invalid_argument);
  CHECK(error_of([&] { wait(me->peer(0).call<&add>(1, 1)); }) == errc::invalid_argument);
}

TEST_CASE("wait: where nobody runs the loop is an error, and so is a run that is over") {
  CHECK(error_of([] { wait([]() -> asio::awaitable<void> { co_return; }()); }) ==
        errc::invalid_argument);
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  const auto idle = error_of([&] { wait(me->peer(0).call<&add>(1, 1)); });
  CHECK(idle == errc::invalid_argument);
  CHECK(idle.message().find("nobody runs the loop of worker 'worker0'") != std::string::npos);
  me.leave();
  std::async(std::launch::async, [&] { CHECK_FALSE(me.run()); }).get();
  CHECK(error_of([&] { wait(me->peer(0).call<&add>(1, 1)); }) == errc::shutting_down);
}

int slow(int x) {
  std::this_thread::sleep_for(1500ms);
  return x;
}

TEST_CASE("wait: lasts longer than a second where a thread polls now and then") {
  owned_worker me = join_blocking<tcp>(seat_of(fresh_run(), 0, 1));
  std::atomic<bool> done{false};
  std::thread frames([&] {
    for (bounded_wait until("the wait has ended"); until.not_yet(done);) {
      me.poll();
      std::this_thread::sleep_for(16ms);
    }
  });
  CHECK(wait(*me, me->peer(0).call<&slow>(7)) == 7);
  done = true;
  frames.join();
}

TEST_CASE("wait: cancels the work at its limit") {
  joined_pair all(2);
  // With more time until it has begun.
  const int before = rested;
  weft::duration limit = 50ms;
  for (bounded_wait until("it has begun"); until.not_yet(rested > before); limit *= 2) {
    const auto e =
        error_of([&] { wait(all[0], all[0].peer(1).call<&rest>(within(1min)), within(limit)); });
    CHECK(e == errc::timed_out);
  }
  for (bounded_wait until("it is cancelled"); until.not_yet(resting == 0);)
    std::this_thread::sleep_for(1ms);
}

}  // namespace joined_workers
