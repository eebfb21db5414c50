// SPDX-License-Identifier: BSL-1.0
// Objects that were never made: what their users are told, and what is said if there are none.
#include "pure.hpp"
#include <weft/engine/worker/worker.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <regex>
#include <rpc/said.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace rref_unmade {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::errc;
using weft::rref;
using weft::worker;

struct brittle {
  explicit brittle(int) { throw std::runtime_error("no such thing"); }
  int value() { return 0; }
  asio::awaitable<int> value_later() { co_return 0; }
};
std::string never() { throw std::logic_error("this is never made"); }
asio::awaitable<std::string> never_later(worker& me) {
  co_return co_await me.peer(me.rank()).call<&never>();
}

/// Throws when it is written, or when it is read.
struct misfit {
  bool unwritable = false;
  static constexpr std::string_view weft_structure = "rref_unmade::misfit 1";
  friend void weft_encode(weft::writer& w, const misfit& m) {
    if (m.unwritable) {
      throw weft::rpc_error(weft::error(errc::not_encodable, "it does not fit").with([](auto& d) {
        d.function = "a function it has called";
      }));
    }
    weft::encode(w, 1);
  }
  friend misfit weft_decode(weft::reader& r, std::type_identity<misfit>) {
    static_cast<void>(weft::decode<int>(r));
    throw std::runtime_error("it makes no sense");
  }
};
struct picky {
  explicit picky(misfit) {}
  int value() { return 1; }
};
asio::awaitable<int> use_it(rref<brittle> b) { co_return co_await b.call<&brittle::value>(); }

struct thing {
  int value = 5;
  int get() { return value; }
};
struct unused {
  explicit unused(int) { throw std::runtime_error("nobody hears this"); }
};
int unheard() { throw std::runtime_error("nor this"); }
int derive(thing&) { throw std::runtime_error("nor what is made of others"); }
struct kept_to_the_end {
  kept_to_the_end() { throw std::runtime_error("kept, and never used"); }
};
asio::awaitable<rref<thing>> make_thing(worker& me, int rank) {
  co_return me.peer(rank).make<thing>();
}
int nothing() { return 0; }

gate& door() {
  static gate g;
  return g;
}
std::atomic<bool> computes{false}, used{false};
struct slowly_made {
  slowly_made() { door().pass(); }
  int get() { return 7; }
};
/// Keeps the worker's thread until the objects have been used.
asio::awaitable<bool> compute() {
  computes = true;
  const auto patience = std::chrono::steady_clock::now() + 20s;
  while (!used && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  co_return used;
}

/// What a user sees, but for how long it took.
std::string printed(const weft::error& e) {
  return std::regex_replace(std::string(weft::rpc_error(e).what()),
                            std::regex(" \\(after \\d+ ms\\)"), "");
}
std::size_t times(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

namespace {

TEST_CASE("unmade: who uses an object is told what did not make it, where and why") {
  pure_everywhere(3, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      const std::string there = "' on worker 'worker" + std::to_string(rank) + "': ";
      const std::string unmade =
          "the object was not made: 'rref_unmade::brittle::brittle' threw: no such thing";
      auto b = me.peer(rank).make<brittle>(1);
      for (int round = 0; round < 2; ++round) {  // while it is being made, perhaps, and after
        const auto e = co_await thrown_by(b.call<&brittle::value>());
        CHECK(printed(e) == "call of 'rref_unmade::brittle::value" + there +
                                "remote exception: " + unmade + " [not executed]");
        CHECK(e.ran() == call_progress::not_executed);  // the member
        CHECK(e.detail().remote_type == "std::runtime_error");
      }
      CHECK(printed(co_await thrown_by(b.call<&brittle::value_later>())) ==
            "call of 'rref_unmade::brittle::value_later" + there + "remote exception: " + unmade +
                " [not executed]");
      // What was to be made of it: the cause is told once.
      const auto of_it = co_await thrown_by(b.remote<&brittle::value>().to_here());
      CHECK(times(printed(of_it), unmade) == 1);
      CHECK(times(printed(of_it), "the object was not made") == 1);
      const auto elsewhere = co_await thrown_by(me.peer(2).call<&use_it>(b));
      CHECK(times(printed(elsewhere), unmade) == 1);

      const auto s = co_await thrown_by(me.peer(rank).remote<&never>().to_here());
      CHECK(times(printed(s), there + "remote exception: the object was not made: "
                                      "'rref_unmade::never' threw: this is never made [") == 1);
      const auto nested = co_await thrown_by(me.peer(rank).remote<&never_later>().to_here());
      CHECK(times(printed(nested), "the object was not made: 'rref_unmade::never_later' threw: "
                                   "call of 'rref_unmade::never'") == 1);
    }
  });
}

TEST_CASE("unmade: a constructor that did not run, or was never asked, is said not to have run") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      const auto unread =
          co_await thrown_by(me.peer(rank).make<picky>(misfit{false}).call<&picky::value>());
      CHECK(times(printed(unread), "the object was not made: 'rref_unmade::picky::picky' was not "
                                   "run: ") == 1);
      CHECK(times(printed(unread), "it makes no sense") == 1);
      const auto unsent =
          co_await thrown_by(me.peer(rank).make<picky>(misfit{true}).call<&picky::value>());
      CHECK(times(printed(unsent), "call of 'rref_unmade::picky::value'") == 1);
      CHECK(times(printed(unsent),
                  "the object was not made: the request for "
                  "'rref_unmade::picky::picky' was not sent: it does not fit") == 1);
      CHECK(times(printed(unsent), "a function it has called") == 0);
      CHECK(unsent.ran() <= call_progress::not_executed);
    }
  });
}

TEST_CASE(
    "unmade: what nobody asked for is said once for each function by its owner, and counted") {
  const said here;
  std::vector<rref<kept_to_the_end>> kept;
  {
    pure_cluster all(2, over::tcp);
    const auto ends = all.run([&](worker& me) -> asio::awaitable<void> {
      if (me.rank() != 0) co_return;
      const auto failed = [&] { return all.at(1).stats().creations_failed; };
      for (std::uint64_t i = 0; i < 3; ++i) {
        static_cast<void>(me.peer(1).make<unused>(1));
        const auto dropped_later = me.peer(1).remote<&unheard>();
        CHECK(co_await me.peer(1).call<&nothing>() == 0);
      }
      CHECK(co_await eventually([&] { return failed() == 6; }));
      auto fine = me.peer(1).make<thing>();
      static_cast<void>(fine.remote<&derive>());
      CHECK(co_await fine.call<&thing::get>() == 5);
      CHECK(co_await eventually([&] { return failed() == 7; }));
      // Whoever asked for it was told: nothing is left to say.
      {
        auto b = me.peer(1).make<brittle>(1);
        const auto copy = b;
        CHECK(co_await thrown_by(b.call<&brittle::value>()) == errc::remote_exception);
        auto s = me.peer(1).remote<&never>();
        CHECK(co_await thrown_by(s.to_here()) == errc::remote_exception);
      }
      kept.push_back(me.peer(1).make<kept_to_the_end>());
      CHECK(co_await me.peer(1).call<&nothing>() == 0);
    });
    for (const auto& e : ends) CHECK_FALSE(e);
    CHECK(all.at(1).stats().creations_failed == 7);
    CHECK(all.at(0).stats().creations_failed == 0);
  }
  INFO(here.text());
  CHECK(here.times("weft: worker1: a make or remote by worker 'worker0' failed, and nobody asked "
                   "for its object: ") == 4);
  CHECK(here.times("'rref_unmade::unused::unused' threw: nobody hears this") == 1);
  CHECK(here.times("'rref_unmade::unheard' threw: nor this") == 1);
  CHECK(here.times("'rref_unmade::derive' threw: nor what is made of others") == 1);
  CHECK(here.times("kept, and never used") == 1);
  CHECK(here.times("no such thing") + here.times("this is never made") == 0);
  CHECK(here.times("(creations_failed)") == 4);
}

TEST_CASE("unmade: a plain function has its object though the worker's thread computes") {
  run_pure(2, over::tcp, 1u, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    weft::future<bool> busy = me.peer(1).start<&compute>();
    CHECK(co_await eventually([] { return computes.load(); }));
    for (int i = 0; i < 20; ++i) {
      door().close();
      const auto before = all.at(1).stats().served;
      const auto made = me.peer(1).make<slowly_made>();
      weft::future<int> got = made.start<&slowly_made::get>();
      CHECK(co_await eventually([&] { return all.at(1).stats().served == before + 2; }));
      door().open();
      CHECK(co_await std::move(got) == 7);
    }
    // Nothing of them waits for that thread.
    CHECK(static_cast<weft::engine::worker&>(all.at(1)).requests().size() < 5);
    used = true;
    CHECK(co_await std::move(busy));
  });
}

TEST_CASE("unmade: a making whose time is over when it begins is not sent") {
  pure_everywhere(2, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      auto fine = me.peer(rank).make<thing>();
      CHECK(co_await fine.call<&thing::get>() == 5);
      const auto calls = me.stats().calls;
      for (const auto limit : {0ms, -1ms}) {
        const weft::within over(limit);
        auto late = weft::make_intrusive<weft::call_scope>();
        late->deadline = me.time().now() + limit;
        const auto made = co_await thrown_by(
            (co_await weft::with_scope(weft::detail::context_of(me), late, make_thing(me, rank)))
                .call<&thing::get>());
        const auto kept = co_await thrown_by(fine.remote<&thing::get>(over).to_here());
        for (const auto& e : {made, kept}) {
          CHECK(e == errc::timed_out);
          CHECK(e.ran() <= call_progress::not_executed);  // the use, at an owner that is oneself
          CHECK(times(printed(e), "' was not sent: the deadline had passed before it was sent") ==
                1);
        }
        for (const auto& e : {co_await thrown_by(fine.to_here(over)),
                              co_await thrown_by(fine.call<&thing::get>(over)),
                              co_await thrown_by(fine.start<&thing::get>(over).get())}) {
          CHECK(e == errc::timed_out);
          CHECK(e.ran() == call_progress::not_sent);
        }
      }
      CHECK(me.stats().calls == calls + 4);  // the uses of what was never made
    }
  });
}

}  // namespace
}  // namespace rref_unmade
