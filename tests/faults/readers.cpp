// SPDX-License-Identifier: BSL-1.0
// Memory lacks where requests are read, decoded and served: the caller is told, link and run live.
#include "boxes.hpp"
#include <weft/rpc/peer.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace poor_readers {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::errc;
using weft::rref;
using weft::worker;

// Workers are threads of this process, so that a thread's memory can be named by its address.
std::uint64_t address_here() { return reinterpret_cast<std::uintptr_t>(&thread_memory::here()); }
weft::immediate<std::uint64_t> of_reader() { return address_here(); }
asio::awaitable<std::uint64_t> of_worker() { co_return address_here(); }
thread_memory& at(std::uint64_t address) {
  return *reinterpret_cast<thread_memory*>(static_cast<std::uintptr_t>(address));
}

std::string plain(std::string s) { return s; }
weft::immediate<std::string> here(std::string s) { return s; }
asio::awaitable<std::string> later(std::string s) { co_return s; }
asio::awaitable<int> look(rref<box> r) { return r.call<&box::size>(); }

shelf taken;  // on the worker's thread
asio::awaitable<void> take(std::vector<rref<box>> boxes) {
  taken.boxes = std::move(boxes);
  co_return;
}
asio::awaitable<void> leave() { return take({}); }
asio::awaitable<int> look_at_taken() {
  shelf mine = std::exchange(taken, {});
  co_return co_await mine.sizes();
}
std::vector<rref<box>> shared(worker& me, const std::string& text) {
  return {me.share(box{text}), me.share(box{text}), me.share(box{text})};
}
box boxed(std::string text) { return {std::move(text)}; }
int add(int a, int b) { return a + b; }

enum class way : std::uint8_t {
  plain,
  here,
  later,
  make,
  remote,
  call,
  call_later,
  to_here,
  hand_on,
  give_away,     // by what nobody waits for: nobody else holds them
  give_to_make,  // ... and the request has a target, and makes an object
  last
};

asio::awaitable<std::exception_ptr> use(worker& me, way how, const rref<box>& r,
                                        const std::string& text) {
  const auto p = me.peer(1);
  const auto soon = weft::within(20s);
  switch (how) {
  case way::plain:
    co_return co_await end_of(p.call<&plain>(text, soon));
  case way::here:
    co_return co_await end_of(p.call<&here>(text, soon));
  case way::later:
    co_return co_await end_of(p.call<&later>(text, soon));
  case way::make: {
    const auto made = p.make<box>(text);
    co_return co_await end_of(made.call<&box::size>(soon));
  }
  case way::remote: {
    const auto made = p.remote<&boxed>(text);
    co_return co_await end_of(made.call<&box::size_later>(soon));
  }
  case way::call:
    co_return co_await end_of(r.call<&box::size_here>(soon));
  case way::call_later:
    co_return co_await end_of(r.call<&box::size_later>(soon));
  case way::to_here:
    co_return co_await end_of(r.to_here(soon));
  case way::hand_on:
    co_return co_await end_of(p.call<&look>(r, soon));
  case way::give_away:
    p.post<&take>(shared(me, text));
    co_return co_await end_of(p.call<&look_at_taken>(soon));
  case way::give_to_make: {
    const auto made = r.remote<&box::keep>(shared(me, text));
    co_return co_await end_of(made.call<&shelf::sizes>(soon));
  }
  case way::last:
    break;
  }
  co_return nullptr;
}

asio::awaitable<bool> all_points(pure_cluster& all, worker& me, thread_memory& there, bool reads,
                                 way how) {
  bool well = true;
  const std::string text(large, 'x');
  const points met = co_await at_every_point(400, [&](int n) -> asio::awaitable<outcome> {
    // It is the other's, or this worker's own where that is handed on.
    rref<box> r = how == way::hand_on ? me.share(box{text}) : me.peer(1).make<box>(text);
    CHECK(co_await r.call<&box::size>() == static_cast<int>(large));
    there.lack(n);
    const std::exception_ptr thrown = co_await use(me, how, r, text);
    outcome now{there.suffice(), static_cast<bool>(thrown)};
    if (thrown) CHECK(not_a_shortage(thrown) == "");
    r = {};
    co_await me.peer(1).call<&leave>();
    const auto next = co_await me.peer(1).call<&add>(20, 22, weft::within(20s), weft::as_expected);
    CHECK(next);
    static_cast<void>(co_await me.peer(1).make<box>(text).call<&box::size>());
    well = co_await all_is_well(all, me);
    if (!well) now.struck = false;
    co_return now;
  });
  if (reads) CHECK(met.struck > 0);  // not every way comes to the worker's thread
  co_return well;
}

void with_each_way(over medium, unsigned io_threads) {
  CAPTURE(name_of(medium));
  CAPTURE(io_threads);
  run_pure(2, medium, io_threads, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    const std::uint64_t reader = co_await me.peer(1).call<&of_reader>();
    const std::uint64_t home = co_await me.peer(1).call<&of_worker>();
    for (int i = 0; i < static_cast<int>(way::last); ++i) {
      CAPTURE(i);
      for (const std::uint64_t address : {reader, home}) {
        CAPTURE(address == home);
        if (!co_await all_points(all, me, at(address), address == reader, static_cast<way>(i)))
          co_return;
      }
    }
  });
}

TEST_CASE("shortage: wherever memory lacks at the callee, the caller is told, link and run live") {
  with_each_way(over::tcp, 0);
  with_each_way(over::tcp, 1);
}

std::string of_no_memory() { throw std::bad_alloc(); }
asio::awaitable<std::string> of_no_memory_later() {
  throw std::bad_alloc();
  co_return "";
}
weft::immediate<std::string> of_no_memory_here() { throw std::bad_alloc(); }

TEST_CASE("shortage: a function that throws bad_alloc gives resource_exhausted, and it ran") {
  run_pure(2, over::tcp, 1, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t rank : {1u, 0u}) {
      const auto p = me.peer(rank);
      for (const auto& got : {co_await p.call<&of_no_memory>(weft::as_expected),
                              co_await p.call<&of_no_memory_later>(weft::as_expected),
                              co_await p.call<&of_no_memory_here>(weft::as_expected)}) {
        REQUIRE_FALSE(got);
        INFO(got.error().message());
        CHECK(got.error() == errc::resource_exhausted);
        CHECK(got.error().ran() == weft::call_progress::executed);
        CHECK(got.error().detail().from == weft::origin::remote_user);
      }
    }
  });
}

}  // namespace poor_readers
