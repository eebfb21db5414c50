// SPDX-License-Identifier: BSL-1.0
// What references between real workers cost, keep and promise; no libtorch is needed for it.
#include "pure.hpp"
#include <weft/core/event.hpp>
#include <weft/rref/ledger.hpp>
#include <weft/rref/ledger_wire.hpp>

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <cstddef>
#include <optional>
#include <rpc/raw_peer.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rref_live {

using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;
using weft::rref_protocol::message_kind;

inline gate& door() {
  static gate it;
  return it;
}
inline std::atomic<int>& alive() {
  static std::atomic<int> it{0};
  return it;
}

struct thing {
  int value;
  explicit thing(int v) : value(v) { ++alive(); }
  thing(thing&& other) noexcept : value(other.value) { ++alive(); }
  ~thing() { --alive(); }
  int get() { return value; }
  asio::awaitable<int> get_here() { co_return value; }
};

int count(std::vector<rref<thing>> many) { return static_cast<int>(many.size()); }
bool all_equal(std::vector<rref<thing>> many) {
  return std::all_of(many.begin(), many.end(), [&](const auto& r) { return r == many.front(); });
}

std::uint64_t sent(pure_cluster& all, std::uint32_t rank, message_kind kind) {
  return rrefs(all, rank).counters().sent[static_cast<std::size_t>(kind)];
}

/// Tells whether it was copied on the thread of the worker that owns it.
struct homebody {
  std::vector<int> items;
  const worker* home = nullptr;

  homebody() = default;
  homebody(const homebody& o) : items(o.items), home(o.home) {
    if (home && !weft::detail::context_of(*home).get_executor().running_in_this_thread())
      ++elsewhere();
  }
  homebody(homebody&&) = default;
  static std::atomic<int>& elsewhere() {
    static std::atomic<int> it{0};
    return it;
  }

  asio::awaitable<void> stay(worker& me) {
    home = &me;
    co_return;
  }
  asio::awaitable<void> append(int from, int times) {
    for (int i = 0; i < times; ++i) {
      items.push_back(from + i);
      if (i % 8 == 0) co_await asio::post(asio::use_awaitable);
    }
  }
  static constexpr std::string_view weft_structure = "rref_live::homebody 1";
  friend void weft_encode(weft::writer& w, const homebody& h) { weft::encode(w, h.items); }
  friend homebody weft_decode(weft::reader& r, std::type_identity<homebody>) {
    homebody out;
    out.items = weft::decode<std::vector<int>>(r);
    return out;
  }
};
asio::awaitable<int> fetch_often(rref<homebody> h, int times) {
  int bad = 0;
  for (int i = 0; i < times; ++i) {
    const auto copy = co_await h.to_here();
    for (std::size_t k = 0; k < copy.items.size(); ++k) {
      bad += copy.items[k] == static_cast<int>(k) ? 0 : 1;
    }
  }
  co_return bad;
}

/// Tells on which thread it was made.
struct native {
  using immediate_constructor = native;
  std::thread::id born = std::this_thread::get_id();
  explicit native(bool fails) {
    if (fails) throw std::runtime_error("it was not to be");
  }
  asio::awaitable<bool> born_here() { co_return born == std::this_thread::get_id(); }
};
struct heir : native {  // says nothing of its own constructors
  using native::native;
  asio::awaitable<bool> heir_born_here() { co_return co_await born_here(); }
};

/// Where the workers of a test keep a reference between calls; each on its own thread.
struct places {
  std::optional<rref<thing>> made, kept;
  static places& of_all() {
    static places it;
    return it;
  }
};
asio::awaitable<int> make_one(worker& me, int owner) {
  places::of_all().made = me.peer(owner).make<thing>(9);
  co_return co_await places::of_all().made->call<&thing::get>();
}
asio::awaitable<void> keep(rref<thing> t) {
  places::of_all().kept = std::move(t);
  co_return;
}
asio::awaitable<void> hand_to(worker& me, int rank) {
  me.peer(rank).post<&keep>(*places::of_all().made);
  places::of_all().made.reset();
  co_return;
}
asio::awaitable<int> use_kept() {
  const auto e = co_await places::of_all().kept->call<&thing::get>(weft::as_expected);
  places::of_all().kept.reset();
  co_return e ? 0 : e.error().code().value();
}
asio::awaitable<void> block_thread() {
  door().pass();
  co_return;
}
/// What is wrong with references to a worker that was lost before they were made.
asio::awaitable<std::string> compare_lost(worker& me, int rank) {
  co_await lose_link(me, static_cast<std::uint32_t>(rank));
  const auto p = me.peer(rank).make<thing>(1);
  const auto q = me.peer(rank).make<thing>(1);
  const auto copy = p;
  std::string wrong;
  if (p != copy) wrong += "not equal to its copy;";
  if (p == q) wrong += "equal to another;";
  if (p == rref<thing>()) wrong += "equal to an empty one;";
  if (!((co_await thrown_by(p.call<&thing::get>())) == errc::rref_owner_died)) wrong += "usable;";
  co_return wrong;
}
asio::awaitable<void> send_frame(worker& me, std::uint32_t rank, std::vector<unsigned char> bytes) {
  weft::message m;
  m.payload().raw(bytes.data(), bytes.size());
  weft::frame_header header;
  header.kind = weft::frame_kind::rref;
  if (me.link_to(rank).append(std::move(m).finish(header))) me.link_to(rank).flush();
  co_return;
}
int nothing() { return 0; }
asio::awaitable<int> greet(worker& me, int rank) {
  co_return co_await me.peer(rank).call<&nothing>();
}

asio::awaitable<int> never_made_use_of(thing&) {
  co_await for_ever();
  co_return 0;
}
struct held_thread {
  static inline gate first{gate::state::closed}, then{gate::state::closed};
};
weft::immediate<void> pass_first() {
  held_thread::first.pass();
  return {};
}
weft::immediate<void> pass_then() {
  held_thread::then.pass();
  return {};
}

namespace {

TEST_CASE("rref: one that is in a value many times is handed over once") {
  pure_everywhere(2, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    for (auto p : {me.peer(1).make<thing>(1), me.share(thing(2))}) {
      const auto before = sent(all, 1, message_kind::xack) + sent(all, 1, message_kind::add);
      const std::vector<rref<thing>> many(1000, p);
      CHECK(co_await me.peer(1).call<&all_equal>(many));
      CHECK(co_await eventually([&] { return rrefs(all, 0).counters().pins == 0; }));
      CHECK(sent(all, 1, message_kind::xack) + sent(all, 1, message_kind::add) == before + 1);
    }
  });
}

TEST_CASE("rref: what a message's references cause to be sent goes in few frames") {
  pure_everywhere(2, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    constexpr std::uint64_t number = 1200;
    std::vector<rref<thing>> many;
    for (std::uint64_t i = 0; i < number; ++i) many.push_back(me.share(thing(1)));
    const auto before = rrefs(all, 1).counters().frames;
    CHECK(co_await me.peer(1).call<&count>(many) == number);
    CHECK(sent(all, 1, message_kind::add) == number);
    CHECK(co_await eventually([&] { return rrefs(all, 0).counters().pins == 0; }));
    const auto frames = rrefs(all, 1).counters().frames;
    const auto dels =
        sent(all, 1, message_kind::del);  // read last: there may be more of them by now
    CHECK(frames - before <= dels + number / 512 + 1);
    CHECK(co_await eventually([&] { return sent(all, 1, message_kind::del) == number; }));
    std::vector<rref<thing>> theirs;
    for (int i = 0; i < 500; ++i) theirs.push_back(me.peer(1).make<thing>(i));
    CHECK(co_await theirs.back().call<&thing::get>() == 499);
    CHECK(co_await eventually([&] { return sent(all, 1, message_kind::added) == 500; }));
    // Home again: one frame of xacks.
    const auto then = rrefs(all, 1).counters().frames;
    CHECK(co_await me.peer(1).call<&count>(theirs) == 500);
    CHECK(co_await eventually([&] { return rrefs(all, 0).counters().pins == 0; }));
    CHECK(rrefs(all, 1).counters().frames == then + 1);
  });
}

TEST_CASE("rref: what a batch of requests causes to be sent goes at its end") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    held_thread::first.close();
    pure_cluster all(2, how, with_io_threads(1));  // where no alarm ends it before
    const auto ends = all.run([&all](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      constexpr std::uint64_t number = 200;
      auto first = me.peer(1).start<&pass_first>();
      CHECK(co_await eventually([] { return held_thread::first.arrived() == 1; }));
      std::vector<rref<native>> many;
      for (std::uint64_t i = 0; i < number; ++i) many.push_back(me.peer(1).make<native>(false));
      CHECK(co_await eventually([&me] { return me.link_to(1).waiting() == 0; }));
      held_thread::first.open();
      co_await std::move(first);
      CHECK(co_await eventually([&] { return sent(all, 1, message_kind::added) == number; }));
      CHECK(rrefs(all, 1).counters().frames <= number / 4);
    });
    for (const auto& e : ends) CHECK_FALSE(e);
  }
}

/// Made, and known to be.
asio::awaitable<rref<thing>> thing_at_1(worker& me) {
  auto made = me.peer(1).make<thing>(1);
  CHECK(co_await made.call<&thing::get>() == 1);
  co_return made;
}

/// Every worker's run says that the link between 1 and 2 was lost, and not whose main that ended.
void check_link_is_named(const std::vector<weft::error>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r, ": ", ends[r].message());
    CHECK(ends[r] == (r == 2 ? errc::worker_failed : errc::peer_died));
    CHECK(ends[r].detail().peer == "worker2");
    CHECK(says(ends[r], "the link between worker 'worker1' (rank 1) and worker 'worker2' (rank 2) "
                        "was lost, though both can be reached: "));
    CHECK(says(ends[r], "the test cut the link"));
    CHECK_FALSE(says(ends[r], "main"));
    CHECK_FALSE(says(ends[r], "did not run"));
  }
}

TEST_CASE("rref: a main that fails because an owner is lost does not blame itself") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    pure_cluster all(3, how, with_io_threads(1));
    const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 2) {
        const auto at_1 = co_await thing_at_1(me);
        auto use = at_1.start<&never_made_use_of>();
        me.link_to(1).mark_down(weft::error(errc::peer_died, "the test cut the link"));
        co_await std::move(use);
      }
      co_await for_ever();
    });
    check_link_is_named(ends);
  }
}

TEST_CASE("rref: whoever is called with a reference to a lost worker's object is not blamed") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    pure_cluster all(3, how, with_io_threads(1));
    const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() == 2) {
        const auto at_1 = co_await thing_at_1(me);
        auto use = at_1.start<&never_made_use_of>();
        me.link_to(1).mark_down(weft::error(errc::peer_died, "the test cut the link"));
        CHECK(co_await failure_of(std::move(use)));  // so the loss has been told to everybody here
        const auto here = co_await failure_of(at_1.call<&thing::get>(weft::as_expected));
        CHECK(here == errc::rref_owner_died);
        CHECK(here.detail().peer == "worker1");
        co_await me.peer(0).call<&count>(std::vector{at_1});
      }
      co_await for_ever();
    });
    check_link_is_named(ends);
  }
}

TEST_CASE("rref: what is held back for a batch does not wait for a function that goes on in it") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    held_thread::first.close();
    held_thread::then.close();
    pure_cluster all(2, how, with_io_threads(0));
    const auto ends = all.run([&all](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      auto first = me.peer(1).start<&pass_first>();
      CHECK(co_await eventually([] { return held_thread::first.arrived() == 1; }));
      // These two will be read together.
      const auto made = me.peer(1).make<native>(false);
      auto then = me.peer(1).start<&pass_then>();
      CHECK(co_await eventually([&me] { return me.link_to(1).waiting() == 0; }));
      held_thread::first.open();
      CHECK(co_await eventually([] { return held_thread::then.arrived() == 1; }));
      CHECK(co_await eventually([&all] { return rrefs(all, 1).counters().frames == 1; }));
      held_thread::then.open();
      co_await std::move(first);
      co_await std::move(then);
    });
    for (const auto& e : ends) CHECK_FALSE(e);
  }
}

TEST_CASE("rref: what one turn drops is told together, at its end") {
  pure_everywhere(3, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    // A making holds its reference until it is answered, which may be after a use of its object.
    const auto known = [&] {
      return rrefs(all, 0).describe().find("registering") == std::string::npos &&
             calls_waiting(me, 1) + calls_waiting(me, 2) == 0;
    };
    for (const std::size_t number : {1u, 200u}) {
      std::vector<rref<thing>> many;
      for (std::size_t i = 0; i < 2 * number; ++i) {
        many.push_back(me.peer(1 + static_cast<int>(i % 2)).make<thing>(static_cast<int>(i)));
      }
      for (const auto& one : many) CHECK(co_await one.call<&thing::get>() >= 0);
      CHECK(co_await eventually(known));
      co_await asio::post(asio::use_awaitable);
      const auto frames = rrefs(all, 0).counters().frames;
      const auto dels = sent(all, 0, message_kind::del);
      many.clear();
      CHECK(co_await eventually(
          [&] { return sent(all, 0, message_kind::del) == dels + 2 * number; }));
      // One to each owner, unless the turn lasts so long that the helper tells of what there is.
      CHECK(rrefs(all, 0).counters().frames - frames < (number == 1 ? 3 : number / 4));
      CHECK(co_await nothing_is_left(all));
    }
  });
}

TEST_CASE("rref: more references than a message can hold are refused before it is sent" *
          doctest::test_suite("all")) {
  run_pure(2, over::inproc, 0, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    std::vector<rref<thing>> many;
    for (std::size_t i = 0; i <= weft::rref_protocol::references_per_message; ++i) {
      many.push_back(me.share(thing(1)));
    }
    const auto e = co_await me.peer(1).call<&count>(many, weft::as_expected);
    REQUIRE_FALSE(e);
    CHECK(e.error() == errc::message_too_large);
    CHECK(e.error().ran() == weft::call_progress::not_sent);
    CHECK(rrefs(all, 0).counters().pins == 0);
    many.pop_back();
    CHECK(co_await me.peer(1).call<&count>(many) == static_cast<int>(many.size()));
  });
}

TEST_CASE("rref: a frame holds whole messages, as many as may be, or its link is closed") {
  using namespace weft::rref_protocol;
  struct trial {
    std::size_t messages, bytes_more;
    bool last_damaged;
    bool fine;
  };
  for (const trial t :
       {trial{1, 0, false, true}, trial{3, 0, false, true},
        trial{messages_per_frame, 0, false, true}, trial{0, 0, false, false},
        trial{0, 39, false, false}, trial{1, 1, false, false}, trial{2, 39, false, false},
        trial{2, 0, true, false}, trial{messages_per_frame + 1, 0, false, false}}) {
    CAPTURE(t.messages);
    CAPTURE(t.bytes_more);
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i < t.messages; ++i) {
      message late;  // answers a hand-over that nobody knows: late, but no fault
      late.kind = message_kind::xack;
      late.id = {1, 1, 1};
      late.transfer = i + 1;
      std::byte image[message_bytes];
      REQUIRE(encode(late, image));
      for (const std::byte b : image) bytes.push_back(std::to_integer<unsigned char>(b));
    }
    bytes.resize(bytes.size() + t.bytes_more);
    if (t.last_damaged) bytes[bytes.size() - message_bytes] = 99;
    const auto test = [&](pure_cluster& all, worker& me) -> asio::awaitable<void> {
      CHECK(co_await me.peer(2).call<&greet>(1) == 0);  // the two are connected
      me.peer(2).post<&send_frame>(1u, bytes);
      if (t.fine) {
        CHECK(co_await eventually([&] { return rrefs(all, 1).counters().stale == t.messages; }));
        CHECK(co_await me.peer(2).call<&greet>(1) == 0);
      } else {
        CHECK(co_await eventually(
            [&] { return all.at(1).link_to(2).current_state() == weft::link::state::down; }));
        CHECK(all.at(1).link_to(2).reason() == errc::protocol_error);
      }
    };
    run_pure(3, over::inproc, 0, test, t.fine ? 0 : 2);
  }
}

TEST_CASE("rref: to_here copies where the object's coroutine functions run") {
  homebody::elsewhere() = 0;
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      auto h = me.peer(rank).make<homebody>();
      co_await h.call<&homebody::stay>();
      auto from_2 = me.peer(2).start<&fetch_often>(h, 30);
      auto from_1 = me.peer(1).start<&fetch_often>(h, 30);
      for (int i = 0; i < 5; ++i) co_await h.call<&homebody::append>(100 * i, 100);
      CHECK(co_await std::move(from_2) == 0);
      CHECK(co_await std::move(from_1) == 0);
      CHECK((co_await h.to_here()).items.size() == 500);
    }
  });
  CHECK(homebody::elsewhere() == 0);
}

TEST_CASE("rref: an object that was freed while its reference travelled is lost, and said to be") {
  for (const over how : {over::inproc, over::tcp, over::unix_socket}) {
    CAPTURE(name_of(how));
    run_pure(
        4, how, 0,
        [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
          door().close();
          CHECK(co_await me.peer(3).call<&greet>(2) == 0);  // the two are connected
          CHECK(co_await me.peer(3).call<&make_one>(1) == 9);
          // The third reads nothing: what is sent to it stays under way.
          auto blocked = me.peer(2).start<&block_thread>();
          CHECK(co_await eventually([] { return door().arrived() == 1; }));
          co_await me.peer(3).call<&hand_to>(2);
          // For the owner its only holder is gone now. Worker 0, on this thread, does not hear of it
          // until the third has the reference: it would be told to listen to the holder no more.
          asio::post(weft::detail::context_of(all.at(1)), [&all] {
            all.at(1).link_to(3).mark_down(weft::error(errc::peer_died, "the cable was cut"));
          });
          until("the object is freed", [&] { return rrefs(all, 1).counters().owned == 0; });
          door().open();
          until("the owner is asked", [&] { return sent(all, 2, message_kind::add) == 1; });
          co_await std::move(blocked);
          CHECK(co_await me.peer(2).call<&use_kept>() == static_cast<int>(errc::rref_lost));
          CHECK(alive() == 0);
        },
        3);
  }
}

TEST_CASE("rref: references to what a lost worker never made equal their copies only") {
  run_pure(3, over::inproc, 0, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    CHECK(co_await me.peer(1).call<&compare_lost>(2) == "");
    CHECK(rref<thing>() == rref<thing>());
  });
}

TEST_CASE("rref: other threads drop references while their worker ends") {
  for (const auto [how, io_threads] : ways(2)) {
    for (std::uint64_t round = 0; round < rounds(1, 5); ++round) {
      std::vector<rref<thing>> kept[2];
      std::thread dropping[2];
      {
        weft::options o = with_io_threads(io_threads);
        o.compute_threads = 2;
        pure_cluster all(2, how, o);
        const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
          if (me.rank() != 0) co_return;
          for (int i = 0; i < 500; ++i) {
            kept[i % 2].push_back(me.share(thing(i)));
            kept[i % 2].push_back(me.peer(1).make<thing>(i));
          }
          CHECK(co_await kept[1].back().call<&thing::get>() == 499);
        });
        CHECK_FALSE(ends[0]);
        CHECK_FALSE(ends[1]);
        for (int i = 0; i < 2; ++i) dropping[i] = std::thread([&mine = kept[i]] { mine.clear(); });
      }
      for (std::thread& t : dropping) t.join();
      CHECK(alive() == 0);
    }
  }
}

TEST_CASE("rref: another thread makes and uses references, and awaits them on a pool") {
  for (const auto [how, io_threads] : ways(2)) {
    CAPTURE(name_of(how));
    CAPTURE(io_threads);
    run_pure(2, how, io_threads, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const auto done = weft::make_intrusive<weft::event>();
      std::atomic<int> right{0};
      std::thread other([&, p = me.peer(1)] {
        asio::thread_pool pool(2);
        for (int i = 0; i < 30; ++i) {
          const rref<thing> made = p.make<thing>(i);
          const rref<int> got = made.remote<&thing::get>();
          auto called = asio::co_spawn(pool, made.call<&thing::get>(), asio::use_future);
          auto copied = asio::co_spawn(pool, got.to_here(), asio::use_future);
          try {
            if (called.get() == i && copied.get() == i) ++right;
          } catch (const weft::rpc_error&) {  // counts as wrong
          }
        }
        pool.join();
        done->set();
      });
      co_await weft::event::async_wait(done, asio::use_awaitable);
      other.join();
      CHECK(right == 30);
    });
  }
}

TEST_CASE("rref: a class with an immediate constructor is made in place, another on the pool") {
  for (const over how : {over::inproc, over::tcp}) {
    CAPTURE(name_of(how));
    pure_cluster all(2, how, with_io_threads(0));
    const auto ends = all.run([](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      for (const int rank : {1, 0}) {
        const weft::peer p = me.peer(rank);
        CHECK(co_await p.make<native>(false).call<&native::born_here>());
        CHECK_FALSE(co_await p.make<heir>(false).call<&heir::heir_born_here>());
        const auto e = co_await thrown_by(p.make<native>(true).call<&native::born_here>());
        CHECK(e == errc::remote_exception);
        CHECK(e.message().find("it was not to be") != std::string::npos);
      }
    });
    for (const auto& e : ends) CHECK_FALSE(e);
  }
}

}  // namespace
}  // namespace rref_live
